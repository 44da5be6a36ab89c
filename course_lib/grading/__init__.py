"""Instructors: release chapters to a class, collect what comes back, grade it safely.

    course release 03 05 --to handout/ --seed 7
    course grade submissions/ --release handout.release --out report/

`docs/instructors.md` is the guide. What a student wrote runs in a sandbox only
(`sandbox`), for feedback (`feedback`) and to be traced (`tracing`); marks come from a
trusted process that runs the traced kernels on hidden inputs (`marking`), and the PTX
of Mojo programs (`mojo_marking`). The rest of the room finds the submissions
(`intake`), brings them into the notebook that was given out (`merging`), goes through
a class (`batch`) and writes the reports.
"""
