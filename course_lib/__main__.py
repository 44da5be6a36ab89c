"""`python -m course_lib` is the command `course`."""

import sys

from course_lib.cli import main

sys.exit(main())
