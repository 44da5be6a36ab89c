"""Pictures to play with: `from course_lib import explore`.

    explore.waves(order="tiled", width=4)

Views are anywidget classes over JavaScript modules in this folder. They compute
on the client, ask nothing of the network, and leave a picture and a text in the
saved notebook.
"""

from __future__ import annotations

from course_lib.explorer.wave_widget import Waves, waves

__all__ = ["Waves", "waves"]
