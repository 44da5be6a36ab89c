"""The kernels of chapter 13 against XLA's collectives (NCCL) and cuBLAS, on all GPUs of this host.

    course bench collective

Three cases for each number of rows a device: `all_gather_matmul` against `jax.lax.all_gather` and
`jnp.dot`; the ring all-gather; the reduce-scatter. It is written for 2 GPUs and more.

CUPTI times each kernel on each device. The kernels of one launch are long on the device that
came first, as it waits for the others. So of each kernel the shortest time counts, that of the
device that came last, and the times of a launch's different kernels are added up. This is how
JAX's own collective matmul is measured, too. Beside it stands the host's clock: launches without a
pause, from the first to the last, divided by their number.

Sources: NVIDIA H200 data sheet (NVLink: 900 GB/s in both directions together; 989 TFLOP/s dense).
"""

from __future__ import annotations

import dataclasses
import functools
import random
import secrets
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from course_lib.benchmarks import bench, card, records, timing
from course_lib.benchmarks.bench import Log
from course_lib.benchmarks.records import Record, Row
from course_lib.diagnostics import CourseError
from course_lib.kernels import many_gpus as kernels

LINK_BYTES_PER_S = 450e9
"""What an H200's NVLink carries in one direction (data sheet: 900 GB/s in both)."""

PEAK_FLOP_PER_S = 989e12
"""Its tensor cores in bfloat16, dense (data sheet)."""

ROWS = (1024, 4096, 16384)
K = N = 4096
DTYPE = "bfloat16"

MATMULS = {
    "all_gather_matmul": kernels.Config(),
    "all_gather_matmul, 4 slots": kernels.Config(slots=4, epi_tile_n=32, parcels=1),
}
_GATHER = kernels.RingConfig(blocks=128, tile_m=64, tile_n=256, slots=3)
_SCATTER = kernels.RingConfig(blocks=512, tile_m=16, tile_n=128)


@dataclasses.dataclass(frozen=True)
class Contender:
    """A function of one device's shards.

    Attributes:
      name: what the table calls it.
      function: what one device does.
      config: what it was configured with.
    """

    name: str
    function: Callable[..., Any]
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Case:
    """What is computed by all devices together.

    Attributes:
      name: what the table calls it.
      rows: rows a device.
      shapes: of the whole arrays, with their dtype.
      specs: how the arrays are cut.
      out_spec: how the result is.
      contenders: who computes it; the first is the baseline.
      tflop: what one device computes, in TFLOP.
      sent_bytes: what one device sends.
    """

    name: str
    rows: int
    shapes: tuple[tuple[tuple[int, ...], str], ...]
    specs: tuple[PartitionSpec, ...]
    out_spec: PartitionSpec
    contenders: tuple[Contender, ...]
    tflop: float
    sent_bytes: float


def matmul(devices: int, rows: int) -> Case:
    """`all_gather(a) @ b`, a and b of iid normal bfloat16."""
    ours = [
        Contender(
            name,
            functools.partial(kernels.all_gather_matmul, config=config),
            dataclasses.asdict(config),
        )
        for name, config in MATMULS.items()
    ]
    return Case(
        name=f"{devices} GPUs, all-gather matmul, {rows}x{N}x{K} a device",
        rows=rows,
        shapes=(((devices * rows, K), DTYPE), ((K, devices * N), DTYPE)),
        specs=kernels.GATHERED["in_specs"],
        out_spec=kernels.GATHERED["out_specs"],
        contenders=(Contender("all_gather + dot", _gather_and_dot), *ours),
        tflop=2 * devices * rows * N * K / 1e12,
        sent_bytes=(devices - 1) * rows * K * 2,
    )


def _gather_and_dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.dot(lax.all_gather(a, kernels.AXIS, tiled=True), b)


def gather(devices: int, rows: int) -> Case:
    """Every device's rows on every device."""
    ours = functools.partial(kernels.all_gather, config=_GATHER)
    return Case(
        name=f"{devices} GPUs, all-gather, {rows}x{K} a device",
        rows=rows,
        shapes=(((devices * rows, K), DTYPE),),
        specs=(PartitionSpec(kernels.AXIS),),
        out_spec=PartitionSpec(kernels.AXIS),
        contenders=(
            Contender("lax.all_gather", lambda x: lax.all_gather(x, kernels.AXIS)),
            Contender("all_gather", ours, dataclasses.asdict(_GATHER)),
        ),
        tflop=0,
        sent_bytes=(devices - 1) * rows * K * 2,
    )


def scatter(devices: int, rows: int) -> Case:
    """Sums over devices, each of them on one device; float32."""
    ours = functools.partial(kernels.reduce_scatter, config=_SCATTER)
    return Case(
        name=f"{devices} GPUs, reduce-scatter, {rows}x{K} a device",
        rows=rows,
        shapes=(((devices * devices, rows, K), "float32"),),
        specs=(PartitionSpec(kernels.AXIS),),
        out_spec=PartitionSpec(kernels.AXIS),
        contenders=(
            Contender("lax.psum_scatter", lambda x: lax.psum_scatter(x, kernels.AXIS)),
            Contender("reduce_scatter", ours, dataclasses.asdict(_SCATTER)),
        ),
        tflop=0,
        sent_bytes=(devices - 1) * rows * K * 4,
    )


def cases(devices: int, rows: Sequence[int] = ROWS) -> list[Case]:
    """All that is measured; the product first."""
    products = [matmul(devices, m) for m in rows]
    rings = [make(devices, m) for m in rows for make in (gather, scatter)]
    return [*products, *rings]


# ---- running them ----


def kernel_time_us(found: Sequence[tuple[str, float]], devices: int) -> float:
    """One launch's time of what CUPTI recorded on all devices: (kernel's name, milliseconds).

    Raises:
      CourseError: a kernel did not run equally often on each device.
    """
    times: defaultdict[str, list[float]] = defaultdict(list)
    for name, milliseconds in found:
        times[name].append(milliseconds)
    total = 0.0
    for name, of_kernel in times.items():
        per_device, rest = divmod(len(of_kernel), devices)
        if rest:
            raise CourseError(f"{name} ran {len(of_kernel)} times on {devices} devices.")
        total += sum(sorted(of_kernel)[:per_device])
    return total * 1e3


def _launch_us(call: Callable[[], Any], devices: int) -> float:
    extension = timing._extension()
    extension._cupti_init()
    try:
        jax.block_until_ready(call())
    finally:
        found = extension._cupti_get_timings(True)
    if not found:
        raise CourseError("CUPTI recorded no kernel.")
    return kernel_time_us(found, devices)


def _host_us(calls: Sequence[Callable[[], Any]]) -> float:
    started = time.perf_counter()
    jax.block_until_ready([call() for call in calls][-1])
    return (time.perf_counter() - started) / len(calls) * 1e6


def _inputs(case: Case, mesh: Any) -> tuple[Any, ...]:
    """One set of inputs, iid normal, drawn where they are needed."""
    keys = jax.random.split(jax.random.key(secrets.randbits(31)), len(case.shapes))
    return tuple(
        jax.jit(
            functools.partial(jax.random.normal, shape=shape, dtype=dtype),
            out_shardings=NamedSharding(mesh, spec),
        )(key)
        for key, (shape, dtype), spec in zip(keys, case.shapes, case.specs, strict=True)
    )


@jax.jit
def _relative_error(out: Any, want: Any) -> Any:
    out, want = (x.astype(jnp.float32) for x in (out, want))
    return jnp.sqrt(jnp.sum((out - want) ** 2) / jnp.sum(want**2))


def measure_case(
    case: Case, devices: int, log: Log, *, rounds: int = 4, launches: int = 5
) -> list[Row]:
    """Times one case: who is wrong, before the timing or after it, is left out and noted."""
    mesh = kernels.mesh_of(devices)
    sets = [_inputs(case, mesh) for _ in range(2)]
    specs = case.specs if len(case.specs) > 1 else case.specs[0]
    running, errors = {}, {}
    wanted = None
    for c in case.contenders:
        log.progress(case.name, f"is {c.name} right?")
        whole = kernels.on_devices(c.function, devices, in_specs=specs, out_specs=case.out_spec)
        compiled = jax.jit(whole).lower(*sets[0]).compile()
        out = [compiled(*args) for args in sets]
        wanted = out if wanted is None else wanted
        errors[c.name] = _worst(out, wanted)
        if errors[c.name] > bench.TOLERANCE[case.shapes[0][1]]:
            log.note(f"{case.name}: {c.name} is wrong: its relative error is {errors[c.name]:.1e}.")
            continue
        running[c.name] = compiled
        del out
    times: dict[str, list[float]] = {name: [] for name in running}
    host: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(rounds):
        for name in random.sample(list(running), len(running)):
            calls = [functools.partial(running[name], *sets[i % 2]) for i in range(launches)]
            jax.block_until_ready(calls[-1]())
            times[name] += [_launch_us(call, devices) for call in calls]
            host[name].append(_host_us(calls * 2))
    for name, compiled in list(running.items()):  # who was right once and then not has a race
        after = _worst([compiled(*args) for args in sets], wanted or ())
        errors[name] = max(errors[name], after)
        if after > bench.TOLERANCE[case.shapes[0][1]]:
            log.note(f"{case.name}: {name} is wrong after the timing: its error is {after:.1e}.")
            del running[name]
    base_us = statistics.median(times[case.contenders[0].name])
    return [
        _row(case, c, times[c.name], host[c.name], base_us, errors[c.name])
        for c in case.contenders
        if c.name in running
    ]


def _worst(out: Sequence[Any], wanted: Sequence[Any]) -> float:
    found = [float(_relative_error(o, w)) for o, w in zip(out, wanted, strict=True)]
    return max(found) if all(e == e for e in found) else float("inf")


def _row(
    case: Case, c: Contender, times: list[float], host: list[float], base_us: float, error: float
) -> Row:
    spread = timing.Timing(tuple(times))
    seconds = spread.median_us * 1e-6
    link = case.sent_bytes / seconds / LINK_BYTES_PER_S
    config = {"rows": case.rows, "link": round(link, 4), "host_us": round(min(host), 1)}
    if case.tflop:
        config["tensor_core"] = round(case.tflop * 1e12 / seconds / PEAK_FLOP_PER_S, 4)
    return Row(
        case=case.name,
        name=c.name,
        median_us=round(spread.median_us, 2),
        low_us=round(spread.quartiles_us[0], 2),
        high_us=round(spread.quartiles_us[1], 2),
        launches=len(times),
        rate=round((case.tflop or case.sent_bytes / 1e9) / seconds, 1),
        ratio=round(base_us / spread.median_us, 4),
        error=float(f"{error:.2e}"),
        config={**config, **c.config},
    )


def run_suite(
    rows: Sequence[int] = ROWS, *, rounds: int = 4, anyway: bool = False, say: Any = print
) -> Record:
    """Measures every case on all GPUs of this process.

    The unit of a row's rate is TFLOP/s a device for products and GB/s sent by a device for the
    others. `Row.config` has the share of the link's speed ("link"), of the tensor cores'
    ("tensor_core"), and the host's time per launch ("host_us").

    Raises:
      CourseError: there are not two GPUs; or the first is busy or slowed and `anyway` is False.
    """
    card.need_gpu()
    devices = len(jax.devices("gpu"))
    if devices < 2:
        raise CourseError("This takes two GPUs of one host, and JAX sees one here.")
    log = Log(say, progress=lambda *_: None)
    started = time.perf_counter()
    before = bench.settled_state()
    bench.look_at(before, log, anyway=anyway)
    found: list[Row] = []
    for case in cases(devices, rows):
        of_case = measure_case(case, devices, log, rounds=rounds)
        found += of_case
        for row in of_case:
            say(_line(row))
    return Record(
        suite="collective",
        baseline="XLA",
        unit="TFLOP/s, GB/s",
        rows=tuple(found),
        card={**records.card_of(before, card.state(), {}), "devices": devices},
        software=records.software(),
        date=records.now(),
        notes=tuple(log.notes),
        seconds={"all": round(time.perf_counter() - started, 1)},
    )


def _line(row: Row) -> str:
    shares = f"link {row.config['link']:.0%}"
    if "tensor_core" in row.config:
        shares += f", tensor cores {row.config['tensor_core']:.0%}"
    return (
        f"{row.case}: {row.name}: {row.median_us:.1f} µs ({row.low_us:.1f} to {row.high_us:.1f}),"
        f" ratio {row.ratio:.3f}, {shares}, host {row.config['host_us']:.0f} µs, error {row.error}"
    )
