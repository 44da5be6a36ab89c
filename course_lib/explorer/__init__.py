"""Pictures to play with: `from course_lib import explore`.

    explore.smem(64, 128, tile=(8, 64), swizzle=128)   # index -> byte address and bank
    explore.registers("WGMMA", 64, 16)                 # element -> warp, lane, register
    explore.banks("WGMMA", 64, 64, bits=32, tile=(8, 32))
    explore.tmem(128, 64)
    explore.pipeline(stages=3)
    explore.barriers("eager", order="0")               # arrivals, phases and waits, by steps
    explore.waves(order="tiled", width=4)
    explore.waves(cluster=(2, 2))                      # blocks in clusters load together
    explore.schedules(16, sms=4, pattern="mixed")      # who computes which tile, and the tail

Views are anywidget classes over JavaScript modules in this folder. They compute
on the client, ask nothing of the network, and leave a picture and a text in the
saved notebook. `index.html` in this folder holds all of them without a notebook:
`course explore` opens it.
"""

from __future__ import annotations

from course_lib.explorer.barrier_widget import Barriers, barriers
from course_lib.explorer.layout_widgets import (
    Banks,
    Pipelines,
    Registers,
    Smem,
    Tmem,
    banks,
    pipeline,
    registers,
    smem,
    tmem,
)
from course_lib.explorer.schedule_widget import Schedules, schedules
from course_lib.explorer.wave_widget import Waves, waves

__all__ = [
    "Banks",
    "Barriers",
    "Pipelines",
    "Registers",
    "Schedules",
    "Smem",
    "Tmem",
    "Waves",
    "banks",
    "barriers",
    "pipeline",
    "registers",
    "schedules",
    "smem",
    "tmem",
    "waves",
]
