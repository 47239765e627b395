"""An exact solver (CP-SAT of OR-tools) for small sets of jobs: can so few workers do?

    python benchmarks/peers/cp_sat.py < sets.json

Reads a list of {"jobs": [[period, duration], …], "workers": n} in seconds and answers with a list
of true (a schedule exists), false (none does) and null (not known in time). It runs in an
environment of its own, which `placement.py --small` makes; it is no contender in a race.
"""

import json
import sys
from math import gcd, lcm

REQUIREMENTS = ["ortools==9.15.6755"]
SECONDS = 20.0


def is_possible(jobs: list[list[int]], workers: int) -> bool | None:
    from ortools.sat.python import cp_model  # noqa: PLC0415 - only in an environment of its own

    model = cp_model.CpModel()
    starts = [model.new_int_var(0, period - 1, f"start {n}") for n, (period, _) in enumerate(jobs)]
    if workers == 1:
        # Two jobs never meet if and only if they do not within the common divisor of their periods.
        for n, (period, lasting) in enumerate(jobs):
            for m, (other, taking) in enumerate(jobs[:n]):
                common = gcd(period, other)
                if lasting + taking > common:
                    return False
                turns = model.new_int_var(-period, other, f"turns {n} {m}")
                apart = model.new_int_var(taking, common - lasting, f"apart {n} {m}")
                model.add(starts[n] - starts[m] == apart + turns * common)
    else:
        horizon = lcm(*(period for period, _ in jobs))
        runs = []
        for (period, lasting), start in zip(jobs, starts, strict=True):
            # The run before may reach into the horizon.
            runs += [
                model.new_fixed_size_interval_var(start + shift, lasting, "")
                for shift in range(-period, horizon, period)
            ]
        model.add_cumulative(runs, [1] * len(runs), workers)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return True
    return False if status == cp_model.INFEASIBLE else None


if __name__ == "__main__":
    sets = json.load(sys.stdin)
    json.dump([is_possible(one["jobs"], one["workers"]) for one in sets], sys.stdout)
