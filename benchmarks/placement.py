"""How flat is the load? Six ways to choose when jobs run, on the same jobs, by replay.

    python benchmarks/placement.py            all of it, some minutes
    python benchmarks/placement.py --quick    fewer and smaller
    python benchmarks/placement.py --cost     only what it costs, in processor time
    python benchmarks/placement.py --settled  only ours: as the jobs come, and after one rebalance
    python benchmarks/placement.py --sets     jobs that come at once, 40 fresh seeds; also --quick
    python benchmarks/placement.py --small    only small sets, beside an exact solver
    python benchmarks/placement.py --promised what was promised, and whether it holds; also --quick
    python benchmarks/placement.py --learned  only ways to learn durations
    python benchmarks/placement.py --crontab  a crontab of 200 typical jobs, for a picture

Every run of a week is replayed second by second; the figure is the peak of concurrent runs divided
by their mean, so 1.0 is perfectly flat. Then: starts per slot, and what it costs at a million jobs.
"""

import hashlib
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import ceil, lcm
from typing import NamedTuple
from uuid import UUID

import numpy as np

from evenbeat.domain.load_entry import LoadEntry
from evenbeat.domain.schedule import Cron
from evenbeat.placement.late import LateJob, spread_late
from evenbeat.placement.load import Beat, CronLoad, LoadModel
from evenbeat.placement.planner import Rhythm, highest_ahead, place, place_many
from evenbeat.placement.rebalancing import rebalance
from evenbeat.placement.simulate import WEEK, Curve, Runs, replay

NOW = datetime(2026, 2, 4, 9, 3, 27, tzinfo=UTC)
SINCE = LoadModel(NOW).since
NOW_SECOND = SINCE + (int(NOW.timestamp()) - SINCE)
HOUR, DAY, SLOT = 3600, 86_400, 900
MIXED = [1800, HOUR, 2 * HOUR, 4 * HOUR, 6 * HOUR, 12 * HOUR, DAY, WEEK]
# Seeds 1 to 40 served to choose among ways to settle ties, so they prove nothing any more.
SEEDS = list(range(101, 110))
MANY_SEEDS = list(range(101, 141))
FRESH_SEEDS = list(range(501, 541))  # seen by nobody before the rule for sets was settled
ASKED = {200: 1.5, 1000: 1.2, 5000: 1.1}


class JobRecord(NamedTuple):
    """A generated job in seconds; `expected` is what placement is told of its duration."""

    name: str
    period: int
    duration: int
    expected: int
    midnight: bool = False


def entry(number: int, interval_seconds: int, next_run_at: datetime, cost_ms: float) -> LoadEntry:
    """A balanced job as the store would describe it to a rebalance."""
    kind = (interval_seconds, None, "UTC", None, None, next_run_at, "scheduled", "balanced", None)
    return LoadEntry(UUID(int=number), None, "task", "default", "interval", *kind, cost_ms)


Change = Callable[[list["JobRecord"], np.random.Generator], list["JobRecord"]]
Contender = Callable[[list[JobRecord], np.random.Generator], list[int]]


def generated(
    count: int, random: np.random.Generator, periods: list[int] | None = None
) -> list[JobRecord]:
    """Mixed periods, log-normal durations with a median of 60 s and sigma 1.2."""
    lasting = np.maximum(1, np.rint(60 * np.exp(1.2 * random.standard_normal(count))))
    every = random.choice(periods or MIXED, count)
    pairs = [(int(p), int(min(p, d))) for p, d in zip(every, lasting, strict=True)]
    return [JobRecord(f"job-{n}", p, d, d) for n, (p, d) in enumerate(pairs)]


# ---------------------------------------------------------------- contenders: seconds since 1970


def cron_at_zero(jobs: list[JobRecord], _: np.random.Generator) -> list[int]:
    """What people write: `0 0 * * *`, `0 */2 * * *`, `*/30 * * * *`, `0 0 * * 0`."""
    sunday = 3 * DAY
    return [sunday if job.period == WEEK else 0 for job in jobs]


def now_plus_interval(jobs: list[JobRecord], random: np.random.Generator) -> list[int]:
    """First run one interval after creation, the jobs being created in the course of an hour."""
    created = NOW_SECOND + random.integers(0, HOUR, len(jobs))
    return [int(at) + job.period for at, job in zip(created, jobs, strict=True)]


def random_phase(jobs: list[JobRecord], random: np.random.Generator) -> list[int]:
    """Any second of the interval."""
    return [int(random.integers(0, job.period)) for job in jobs]


def hash_of_name(jobs: list[JobRecord], _: np.random.Generator) -> list[int]:
    """Jenkins' H: a minute of the interval from a hash of the name."""
    digests = [int.from_bytes(hashlib.md5(job.name.encode()).digest()) for job in jobs]  # noqa: S324
    return [d % (job.period // 60) * 60 for d, job in zip(digests, jobs, strict=True)]


def bucket_map(jobs: list[JobRecord], _: np.random.Generator) -> list[int]:
    """The seed's PlaceNewJob: the slot with the fewest next runs, searched in steps of a slot over
    a day or the interval, whichever is longer; the first of equals; at the slot's first second."""
    slots: dict[int, int] = {}
    first_runs = []
    for job in jobs:
        search = max(DAY, job.period)
        best = NOW_SECOND // SLOT
        for moment in range(NOW_SECOND, NOW_SECOND + search, SLOT):
            if slots.get(moment // SLOT, 0) < slots.get(best, 0):
                best = moment // SLOT
        slots[best] = slots.get(best, 0) + 1
        first_runs.append(best * SLOT)
    return first_runs


def evenbeat(jobs: list[JobRecord], _: np.random.Generator) -> list[int]:
    """Ours, one job after the other in the order they come."""
    model = LoadModel(NOW)
    midnight = [job for job in jobs if job.midnight]
    model.add_crons({j.name: CronLoad(Cron("@daily"), j.expected * 1000) for j in midnight})
    phases = []
    for job in jobs:
        if job.midnight:
            phases.append(0)
            continue
        rhythm = Rhythm(timedelta(seconds=job.period), job.expected * 1000.0)
        placed = place(model, rhythm, NOW)
        model.add(placed.beat)
        phases.append(placed.beat.phase)
    return phases


def rhythms(jobs: list[JobRecord], *, is_rough: bool = False) -> list[Rhythm]:
    return [
        Rhythm(timedelta(seconds=job.period), job.expected * 1000.0, is_rough=is_rough)
        for job in jobs
    ]


def at_once(jobs: list[JobRecord], _: np.random.Generator, *, is_rough: bool = False) -> list[int]:
    """Ours, all jobs at once."""
    model = LoadModel(NOW)
    midnight = [job for job in jobs if job.midnight]
    model.add_crons({j.name: CronLoad(Cron("@daily"), j.expected * 1000) for j in midnight})
    free = [job for job in jobs if not job.midnight]
    places = iter(place_many(model, rhythms(free, is_rough=is_rough), NOW))
    return [0 if job.midnight else next(places).beat.phase for job in jobs]


def at_once_as_guesses(jobs: list[JobRecord], random: np.random.Generator) -> list[int]:
    """The same if the durations are known to be guesses."""
    return at_once(jobs, random, is_rough=True)


def machine_by_machine(jobs: list[JobRecord], _: np.random.Generator) -> list[int]:
    """The order behind the 2-approximation for periods that divide one another (Eisenbrand et al.,
    ICALP 2010): shortest period first, each on the first machine with room, as early as it can."""
    phases, midnight = [0] * len(jobs), [job.expected for job in jobs if job.midnight]
    common = DAY if midnight else 1
    machines = [(np.arange(common) < lasting).astype(np.int32) for lasting in midnight]
    order = sorted(range(len(jobs)), key=lambda n: (jobs[n].period, -jobs[n].expected))
    for n in order:
        period, lasting = jobs[n].period, jobs[n].expected
        if jobs[n].midnight:
            continue
        if (longer := lcm(common, period)) != common:
            machines, common = [np.resize(busy, longer) for busy in machines], longer
        for busy in machines:
            ahead = highest_ahead(busy.reshape(-1, period).max(axis=0), lasting)
            start = int(ahead.argmin())
            if not ahead[start]:
                break
        else:
            machines.append(np.zeros(common, np.int32))
            start, busy = 0, machines[-1]
        runs = busy.reshape(-1, period)
        runs[:, start : start + lasting] = 1
        runs[:, : max(0, start + lasting - period)] = 1
        phases[n] = SINCE + start
    return phases


def even_spacing(jobs: list[JobRecord], _: np.random.Generator) -> list[int]:
    """Nagios' smart inter-check delay: first runs at equal distances, over the mean interval."""
    delay = statistics.mean(job.period for job in jobs) / len(jobs)
    return [NOW_SECOND + round(n * delay) for n in range(len(jobs))]


def slot_by_count(jobs: list[JobRecord], _: np.random.Generator) -> list[int]:
    """As cronstable suggests: the minute whose repetitions have the fewest starts so far."""
    started = np.zeros(WEEK // 60, np.int64)
    phases = []
    for job in jobs:
        minutes = started.reshape(-1, job.period // 60)
        best = int(minutes.sum(axis=0).argmin())
        minutes[:, best] += 1
        phases.append(SINCE + best * 60)
    return phases


SETS: dict[str, Contender] = {
    "seed's BucketMap": bucket_map,
    "hash of name (H)": hash_of_name,
    "random phase": random_phase,
    "even spacing": even_spacing,
    "slot by count": slot_by_count,
    "Evenbeat, one by one": evenbeat,
    "2-approximation": machine_by_machine,
    "Evenbeat, at once": at_once,
    "Evenbeat, as guesses": at_once_as_guesses,
}
"""For jobs that come at once."""

CONTENDERS: dict[str, Contender] = {
    "cron at :00": cron_at_zero,
    "now + interval": now_plus_interval,
    "random phase": random_phase,
    "hash of name (H)": hash_of_name,
    "seed's BucketMap": bucket_map,
    "Evenbeat": evenbeat,
}


# ---------------------------------------------------------------- how flat


def curve_of(jobs: list[JobRecord], phases: list[int], weeks_on: int = 0) -> Curve:
    """The replayed week from now, or one some weeks later."""
    start = SINCE + weeks_on * WEEK
    at = [0 if job.midnight else phase for job, phase in zip(jobs, phases, strict=True)]
    pairs = zip(at, jobs, strict=True)
    return replay(Runs.steady(phase - start, job.period, job.duration) for phase, job in pairs)


def wrong_by_two(jobs: list[JobRecord], random: np.random.Generator) -> list[JobRecord]:
    """Each expected duration is half or double the real one."""
    factors = random.choice([0.5, 2.0], len(jobs))
    return [
        job._replace(expected=max(1, round(job.expected * factor)))
        for job, factor in zip(jobs, factors, strict=True)
    ]


def tenth_at_midnight(jobs: list[JobRecord], _: np.random.Generator) -> list[JobRecord]:
    """Every tenth job is a daily cron job at midnight that nobody may move."""
    return [
        job._replace(period=DAY, midnight=True) if n % 10 == 0 else job
        for n, job in enumerate(jobs)
    ]


VARIES = 0.5  # the sigma of a job's own runs, which are log-normal around its mean


def runs_of(jobs: list[JobRecord], random: np.random.Generator, weeks: int) -> list[np.ndarray]:
    """How long the runs of some weeks take, job by job."""
    counts = [max(1, weeks * WEEK // job.period) for job in jobs]
    return [
        job.duration * np.exp(VARIES * random.standard_normal(count) - VARIES**2 / 2)
        for job, count in zip(jobs, counts, strict=True)
    ]


def moving_average(runs: np.ndarray) -> float:
    """As the statement `finish` learns it."""
    average = runs[0]
    for one in runs[1:]:
        average += 0.2 * (one - average)
    return float(average)


ESTIMATES: dict[str, Callable[[np.ndarray], float]] = {
    "moving average": moving_average,
    "mean": lambda runs: float(runs.mean()),
    "median": lambda runs: float(np.median(runs)),
    "75th percentile": lambda runs: float(np.quantile(runs, 0.75)),
    "90th percentile": lambda runs: float(np.quantile(runs, 0.9)),
}


def learned(
    jobs: list[JobRecord],
    random: np.random.Generator,
    estimate: Callable[[np.ndarray], float] = moving_average,
) -> list[JobRecord]:
    """What is known of durations after two weeks of runs."""
    return [
        job._replace(expected=max(1, min(job.period, round(estimate(runs)))))
        for job, runs in zip(jobs, runs_of(jobs, random, 2), strict=True)
    ]


def as_they_are(jobs: list[JobRecord], _: np.random.Generator) -> list[JobRecord]:
    return jobs


def flatness(
    title: str,
    counts: list[int],
    change: Callable[[list[JobRecord], np.random.Generator], list[JobRecord]] = as_they_are,
    periods: list[int] | None = None,
    weeks_on: int = 0,
) -> None:
    """One table: peak over mean for each contender and number of jobs, median of the seeds."""
    print(f"\n{title}: peak / mean, median of {len(SEEDS)} seeds (worst in brackets)")
    print(f"  {'':<20}" + "".join(f"{count:>16,}" for count in counts), flush=True)
    for name, contender in CONTENDERS.items():
        cells = []
        for count in counts:
            ratios = []
            for seed in SEEDS:
                random = np.random.default_rng(seed)
                jobs = change(generated(count, random, periods), random)
                ratios.append(curve_of(jobs, contender(jobs, random), weeks_on).ratio)
            cells.append(f"{statistics.median(ratios):8.2f} ({max(ratios):5.2f})")
        print(f"  {name:<20}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
    bounds(counts, change, periods)


def bounds(
    counts: list[int],
    change: Callable[[list[JobRecord], np.random.Generator], list[JobRecord]],
    periods: list[int] | None,
) -> None:
    """What nobody can beat: whole runs, and what is pinned by itself."""
    means, least = [], []
    for count in counts:
        of_seeds = []
        for seed in SEEDS:
            random = np.random.default_rng(seed)
            jobs = change(generated(count, random, periods), random)
            mean = sum(job.duration / job.period for job in jobs)
            pinned = [job for job in jobs if job.midnight]
            peak = max(ceil(mean), curve_of(pinned, [0] * len(pinned)).peak)
            of_seeds.append((peak / mean, mean))
        least.append(statistics.median(ratio for ratio, _ in of_seeds))
        means.append(statistics.median(mean for _, mean in of_seeds))
    print(f"  {'lower bound':<20}" + "".join(f"{ratio:>16.2f}" for ratio in least))
    print(f"  {'mean concurrency':<20}" + "".join(f"{mean:>16.1f}" for mean in means))
    if change is as_they_are and periods is None:
        print(f"  {'asked: at most':<20}" + "".join(f"{ASKED[count]:>16.2f}" for count in counts))


def sets_at_once(counts: list[int], seeds: list[int]) -> None:
    """Jobs that come at once, over fresh seeds: how often as few workers as possible are needed."""
    for title, change in (
        ("durations known", as_they_are),
        ("durations learned over two weeks", learned),
        ("durations wrong by a factor of two either way", wrong_by_two),
        ("a tenth pinned by cron at midnight", tenth_at_midnight),
    ):
        print(f"\njobs that come at once, {title}, {len(seeds)} fresh seeds")
        print("  peak / mean, median (worst); at the lower bound, and how many one above it")
        print(f"  {'':<22}" + "".join(f"{count:>32,}" for count in counts), flush=True)
        for name, contender in SETS.items():
            cells = []
            for count in counts:
                ratios, over = [], []
                for seed in seeds:
                    random = np.random.default_rng(seed)
                    jobs = change(generated(count, random), random)
                    curve = curve_of(jobs, contender(jobs, random))
                    pinned = [job for job in jobs if job.midnight]
                    least = max(ceil(curve.mean), curve_of(pinned, [0] * len(pinned)).peak)
                    ratios.append(curve.ratio)
                    over.append(curve.peak - least)
                share = f"{over.count(0) / len(over):.0%} +{over.count(1) / len(over):.0%}"
                cells.append(f"{statistics.median(ratios):.2f} ({max(ratios):.2f}) {share:>10}")
            print(f"  {name:<22}" + "".join(f"{cell:>32}" for cell in cells), flush=True)


def learning(counts: list[int], seeds: list[int]) -> dict[int, float]:
    """Ways to learn durations: two weeks of runs are seen, all jobs are placed by what was learned,
    and the third week is replayed, once with mean durations and once as its runs differ. Returns
    how much higher the peak of the second is than with durations known, for ours."""
    print(f"\nways to learn durations (runs differ by sigma {VARIES}), {len(seeds)} fresh seeds")
    print("  peak / mean, median: mean durations / as runs differ; over that of durations known")
    print(f"  {'':<22}" + "".join(f"{count:>32,}" for count in counts), flush=True)
    ours, known = {}, {}
    ways: dict[str, Callable[[np.ndarray], float] | None] = {"known": None, **ESTIMATES}
    rows = [(name, estimate, at_once) for name, estimate in ways.items()]
    rows.append(("moving av., as guesses", moving_average, at_once_as_guesses))
    for name, estimate, place_all in rows:
        cells = []
        for count in counts:
            steady, differing = [], []
            for seed in seeds:
                random = np.random.default_rng(seed)
                jobs = generated(count, random)
                told = jobs if estimate is None else learned(jobs, random, estimate)
                phases = place_all(told, random)
                steady.append(curve_of(jobs, phases).ratio)
                third = runs_of(jobs, np.random.default_rng(seed), 2)
                differing.append(
                    replay(
                        Runs(starts, np.rint(np.resize(runs, len(starts))).astype(np.int64))
                        for job, phase, runs in zip(jobs, phases, third, strict=True)
                        for starts in [Runs.steady(phase - SINCE, job.period, 1).starts]
                    ).ratio
                )
            both = statistics.median(steady), statistics.median(differing)
            if estimate is None:
                known[count] = both
            if name == "moving average":
                ours[count] = both[1] / known[count][1]
            over = [one / of for one, of in zip(both, known[count], strict=True)]
            cells.append(f"{both[0]:.2f} / {both[1]:.2f}  ({over[0]:.2f}, {over[1]:.2f})")
        print(f"  {name:<22}" + "".join(f"{cell:>32}" for cell in cells), flush=True)
    return ours


def churned(counts: list[int]) -> None:
    """Half of the jobs go, as many others come one by one; then one rebalance, and all anew."""
    print(f"\nafter churn of half the jobs: peak / mean, median of {len(SEEDS)} seeds")
    for count in counts:
        cells: dict[str, list[float]] = {"churned": [], "rebalanced": [], "all at once": []}
        for seed in SEEDS:
            random = np.random.default_rng(seed)
            jobs = generated(count, random)
            phases = at_once(jobs, random)
            stay = sorted(random.choice(count, count // 2, replace=False).tolist())
            model, left = LoadModel(NOW), [jobs[n] for n in stay]
            places = [phases[n] for n in stay]
            model.add_many(
                [Beat(j.period, p, j.expected * 1000) for j, p in zip(left, places, strict=True)]
            )
            new = generated(count - len(left), random)
            for rhythm in rhythms(new):
                placed = place(model, rhythm, NOW)
                model.add(placed.beat)
                places.append(placed.beat.phase)
            everything = [*left, *new]
            cells["churned"].append(curve_of(everything, places).ratio)
            cells["rebalanced"].append(curve_of(everything, rebalanced(everything, places)).ratio)
            cells["all at once"].append(curve_of(everything, at_once(everything, random)).ratio)
        words = ", ".join(f"{name} {statistics.median(of):.2f}" for name, of in cells.items())
        print(f"  {count:>6,} jobs: {words}", flush=True)


def small_sets(count: int = 200) -> None:
    """Sets of 5 to 40 jobs, beside an exact solver wherever the lower bound is not reached."""
    from arena import environment  # noqa: PLC0415 - makes an environment for the solver

    random = np.random.default_rng(640)
    questions, at_bound, within_one = [], 0, 0
    for _ in range(count):
        jobs = generated(int(random.integers(5, 41)), random)
        peak = curve_of(jobs, at_once(jobs, random)).peak
        least = ceil(sum(job.duration / job.period for job in jobs))
        at_bound += peak == least
        within_one += peak <= least + 1
        if peak > least:
            pairs = [[job.period, job.duration] for job in jobs]
            questions.append({"jobs": pairs, "workers": peak - 1})
    solver = [str(environment("cp_sat")), "benchmarks/peers/cp_sat.py"]
    text = json.dumps(questions)
    answers = json.loads(
        subprocess.run(solver, input=text, capture_output=True, check=True, text=True).stdout
    )
    print(f"\n{count} sets of 5 to 40 jobs, durations known: {at_bound} at the lower bound")
    print(
        f"  of the other {len(questions)}, by CP-SAT: {answers.count(False)} cannot do with one "
        f"worker less, {answers.count(True)} can, {answers.count(None)} not known in 20 s"
    )
    print(f"  within one worker of the optimum: {within_one / count:.1%} at least")


def outage(seeds: list[int]) -> float:
    """Six hours without workers, replayed: the highest peak after it over the usual one."""
    print(f"\nsix hours without workers, mixed jobs, {len(seeds)} seeds: late jobs start")
    print("  one after the other within three hours; at once; of 2,000 or so")
    ratios = []
    for seed in seeds:
        random = np.random.default_rng(seed)
        jobs = generated(2770, random)
        phases = at_once(jobs, random)
        model = LoadModel(NOW)
        model.add_many(
            [Beat(j.period, p, j.duration * 1000) for j, p in zip(jobs, phases, strict=True)]
        )
        coming = [(p - NOW_SECOND) % j.period for j, p in zip(jobs, phases, strict=True)]
        late = [n for n, job in enumerate(jobs) if coming[n] - job.period > -6 * HOUR]
        waiting = [LateJob(50, jobs[n].period, coming[n], jobs[n].duration) for n in late]
        starts = dict(zip(late, spread_late(model, NOW_SECOND, waiting, 3 * HOUR), strict=True))
        usual = curve_of(jobs, phases).peak
        peaks = []
        for at in (starts, dict.fromkeys(late, 0)):
            runs = []
            for n, job in enumerate(jobs):
                regular = np.arange(coming[n], WEEK, job.period)
                catches_up = n in at and at[n] < coming[n]
                runs.append(
                    Runs(np.append(at[n], regular) if catches_up else regular, job.duration)
                )
            peaks.append(replay(runs).peak)
        last = max(starts.values()) / HOUR
        ratios.append(peaks[0] / usual)
        print(
            f"  {len(late):,} late: peak {peaks[0]} instead of {peaks[1]:,}, usually {usual}; "
            f"the last starts after {last:.1f} h",
            flush=True,
        )
    return max(ratios)


def must_show(quick: bool) -> None:
    """What was promised, measured on fresh seeds, and whether it holds."""
    counts, seeds = [200, 1000], FRESH_SEEDS[:4] if quick else FRESH_SEEDS
    lines: list[tuple[str, float, float, bool]] = []  # what, measured, promised, at most

    def over_seeds(count: int, place_all: Contender, change: Change) -> tuple[list[float], int]:
        ratios, at_bound = [], 0
        for seed in seeds:
            random = np.random.default_rng(seed)
            jobs = change(generated(count, random), random)
            curve = curve_of(jobs, place_all(jobs, random))
            ratios.append(curve.ratio)
            at_bound += curve.peak <= ceil(curve.mean)
        return ratios, at_bound

    for count, share, alone, wrong in ((200, 0.7, 1.25, 2.2), (1000, 0.9, 1.10, 1.5)):
        _, at_bound = over_seeds(count, at_once, as_they_are)
        lines.append((f"at once, {count:,}: at the bound", at_bound / len(seeds), share, False))
        ratios, _ = over_seeds(count, evenbeat, as_they_are)
        lines.append((f"one by one, {count:,}: median", statistics.median(ratios), alone, True))
        ratios, _ = over_seeds(count, at_once_as_guesses, wrong_by_two)
        lines.append((f"wrong by two, {count:,}: median", statistics.median(ratios), wrong, True))
    for count, over in learning(counts, seeds[:4] if quick else seeds[:8]).items():
        lines.append((f"learned, {count:,}: over known, as runs differ", over, 1.05, True))
    lines.append(("after an outage: peak over the usual", outage(seeds[:4]), 1.5, True))
    print(f"\nwhat was promised, {len(seeds)} fresh seeds")
    for what, measured, promised, at_most in lines:
        holds = measured <= promised if at_most else measured >= promised
        words = f"{'at most' if at_most else 'at least'} {promised:.2f}"
        print(f"  {what:<46}{measured:6.2f}   {words:<14} {'holds' if holds else 'DOES NOT HOLD'}")


def settled(counts: list[int]) -> None:
    """Ours over many seeds: placed one after the other, and after one rebalance a day later."""
    print(f"\nEvenbeat over {len(MANY_SEEDS)} seeds: peak / mean, median (worst), over the bound")
    print(f"  {'':<10}{'placed as they come':>28}{'after one rebalance':>28}{'moved':>12}")
    for count in counts:
        placed, after, moves = [], [], []
        for seed in MANY_SEEDS:
            random = np.random.default_rng(seed)
            jobs = generated(count, random)
            phases = evenbeat(jobs, random)
            moved = rebalanced(jobs, phases)
            placed.append(curve_of(jobs, phases).ratio)
            after.append(curve_of(jobs, moved).ratio)
            moves.append(sum(a != b for a, b in zip(phases, moved, strict=True)))
        cells = [
            f"{statistics.median(of):.2f} ({max(of):.2f}), {sum(r > ASKED[count] for r in of)} over"
            for of in (placed, after)
        ]
        middling = f"{statistics.median(moves):.0f}"
        print(f"  {count:<10,}{cells[0]:>28}{cells[1]:>28}{middling:>12}", flush=True)


def rebalanced(jobs: list[JobRecord], phases: list[int]) -> list[int]:
    """The phases after a rebalance a day later, when nothing is in cooldown any more."""
    later = NOW + timedelta(days=1)
    second = NOW_SECOND + DAY
    rows = [
        entry(
            n,
            job.period,
            datetime.fromtimestamp(second + 1 + (phase - second - 1) % job.period, UTC),
            job.expected * 1000.0,
        )
        for n, (job, phase) in enumerate(zip(jobs, phases, strict=True))
    ]
    to = {move.job_id.int: int(move.new_time.timestamp()) for move in rebalance(rows, later).moves}
    return [to.get(n, phase) for n, phase in enumerate(phases)]


def starts_per_slot() -> None:
    """Equal short jobs: how many start in the fullest slot of the day."""
    print("\nstarts in the fullest of 96 slots, daily jobs of 10 s (the least possible first)")
    counts = [1000, 10_000]
    print(f"  {'':<20}" + "".join(f"{count:>10,}" for count in counts))
    print(f"  {'lower bound':<20}" + "".join(f"{-(-count // 96):>10,}" for count in counts))
    for name, contender in CONTENDERS.items():
        fullest = []
        for count in counts:
            random = np.random.default_rng(1)
            jobs = [JobRecord(f"job-{n}", DAY, 10, 10) for n in range(count)]
            slots = np.array(contender(jobs, random)) % DAY // SLOT
            fullest.append(int(np.bincount(slots, minlength=96).max()))
        print(f"  {name:<20}" + "".join(f"{most:>10,}" for most in fullest))


# ---------------------------------------------------------------- at a million


def random_beats(count: int) -> list[Beat]:
    random = np.random.default_rng(7)
    every = random.choice(MIXED, count)
    phases = NOW_SECOND + (random.random(count) * every).astype(np.int64) + 1
    lasting = 60_000 * np.exp(1.2 * random.standard_normal(count))
    return [
        Beat(*row)
        for row in np.column_stack([every, phases, lasting + 1]).astype(np.int64).tolist()
    ]


def cost_of_one(counts: list[int]) -> None:
    """Processor time to place a job, and to add it, in models of growing size."""
    print("\none job into a model of so many: place / add, median CPU ms of 200; and building it")
    for count in counts:
        beats = random_beats(count)
        model = LoadModel(NOW)
        begun = time.process_time()
        model.add_many(beats)
        built = time.process_time() - begun
        placing, adding = [], []
        for beat in beats[:200]:
            job = Rhythm(timedelta(seconds=beat.period), float(beat.duration_ms))
            begun = time.process_time()
            placed = place(model, job, NOW)
            middle = time.process_time()
            model.add(placed.beat)
            adding.append(time.process_time() - middle)
            placing.append(middle - begun)
        arrays = (model.seconds, model.uncertain_load, model.cells, model.starts)
        size = sum(array.nbytes for array in arrays) / 2**20
        print(
            f"  {count:>9,} jobs   {statistics.median(placing) * 1000:6.3f} / "
            f"{statistics.median(adding) * 1000:.3f} ms   (slowest {max(placing) * 1000:.2f})   "
            f"model {size:.1f} MiB, built in {built:.2f} s"
        )


def snapshot_of(count: int, bunched: bool) -> list[LoadEntry]:
    """Jobs at random phases, or all at the same second of the coming hours."""
    entries = []
    for n, beat in enumerate(random_beats(count)):
        second = NOW_SECOND + min(beat.period, 6 * HOUR) if bunched else beat.phase
        at = datetime.fromtimestamp(second, UTC)
        entries.append(entry(n, beat.period, at, float(beat.duration_ms)))
    return entries


def cost_of_rebalance(counts: list[int]) -> None:
    """Processor time to plan a rebalance, and what the plan gains."""
    print("\nplan of a rebalance (jobs within 30 minutes, or half an interval, of their run stay)")
    for count in counts:
        for bunched in (False, True):
            entries = snapshot_of(count, bunched)
            begun = time.process_time()
            plan = rebalance(entries, NOW)
            took = time.process_time() - begun
            print(
                f"  {count:>9,} jobs, {'bunched' if bunched else 'random ':<8} {took:6.1f} CPU s   "
                f"{len(plan.moves):>8,} moves {len(plan.skipped):>8,} skipped   peak "
                f"{plan.before.peak_load:>10,.0f} -> {plan.after.peak_load:>9,.0f}   "
                f"mean {plan.after.mean_load:>8,.0f}",
                flush=True,
            )
    weekly_bunches()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  the process at its largest: {peak:,.0f} MiB, mostly the snapshot itself")


def weekly_bunches(count: int = 5000) -> None:
    """Weekly jobs of ten minutes that are all due at one second. Half an interval either way, and
    not into the past, they reach the whole week only if that second is half a week away."""
    for ahead in (HOUR, 3 * DAY, 5 * DAY):
        at = datetime.fromtimestamp(NOW_SECOND + ahead, UTC)
        rows = [entry(n, WEEK, at, 600_000.0) for n in range(count)]
        begun = time.process_time()
        plan = rebalance(rows, NOW)
        took = time.process_time() - begun
        reach = ahead + WEEK // 2 - max(HOUR // 2, ahead - WEEK // 2) + 600
        least = ceil(count * 600 / min(WEEK, reach))
        print(
            f"  {count:>9,} weekly, all due in {ahead // HOUR:>3} h {took:6.1f} CPU s   "
            f"{len(plan.moves):>8,} moves   peak {plan.before.peak_load:,.0f} -> "
            f"{plan.after.peak_load:,.0f} (least possible {least})",
            flush=True,
        )


# ---------------------------------------------------------------- a crontab


def typical_crontab(count: int = 200) -> str:
    """What people write: most at minute 0 and at midnight, a tenth at times that they chose."""
    random = np.random.default_rng(2026)
    written = {
        "*/30 * * * *": 10, "0 * * * *": 30, "0 */2 * * *": 6, "0 */6 * * *": 12,
        "0 */12 * * *": 5, "0 0 * * *": 22, "0 0 * * 0": 5, "a chosen time": 10,
    }  # fmt: skip
    chances = np.array(list(written.values())) / sum(written.values())
    lasting = np.maximum(1, np.rint(60 * np.exp(1.2 * random.standard_normal(count))))
    lines = []
    for n, when in enumerate(random.choice(list(written), count, p=chances)):
        chosen = f"{random.choice([5, 15, 30, 45])} {random.integers(24)} * * *"
        fields = chosen if when == "a chosen time" else when
        lines += [f"# duration: {min(1700, int(lasting[n]))}s", f"{fields} /opt/jobs/{n:04d}"]
    return "\n".join(lines)


def main(quick: bool = False, cost_only: bool = False) -> None:
    counts = [200, 1000] if quick else [200, 1000, 5000]
    if not cost_only:
        flatness("mixed periods, 30 min to a week, durations known", counts)
        flatness("durations wrong by a factor of two either way", counts, wrong_by_two)
        flatness("a tenth pinned by cron at midnight", counts, tenth_at_midnight)
        odd = [60 * minutes for minutes in (37, 50, 70, 100, 130, 190, 310, 550, 780, 2880, 7200)]
        flatness("periods that do not divide the week (37m to 5d)", counts, periods=odd)
        flatness("the same, four weeks later", counts, periods=odd, weeks_on=4)
        settled(counts)
        sets_at_once(counts[:2], FRESH_SEEDS[:4] if quick else FRESH_SEEDS)
        churned(counts[:2])
        small_sets(20 if quick else 200)
        starts_per_slot()
    cost_of_one([1000, 100_000] if quick else [1000, 100_000, 1_000_000])
    cost_of_rebalance([1000, 10_000] if quick else [1000, 100_000, 1_000_000])


if __name__ == "__main__":
    if "--crontab" in sys.argv:
        print(typical_crontab())
    elif "--sets" in sys.argv:
        sets_at_once([200, 1000], FRESH_SEEDS[:4] if "--quick" in sys.argv else FRESH_SEEDS)
        churned([200, 1000])
    elif "--promised" in sys.argv:
        must_show("--quick" in sys.argv)
    elif "--learned" in sys.argv:
        learning([200, 1000], FRESH_SEEDS[:8])
    elif "--small" in sys.argv:
        small_sets()
    elif "--settled" in sys.argv:
        settled([200, 1000])
    else:
        main("--quick" in sys.argv, "--cost" in sys.argv)
