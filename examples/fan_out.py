"""A thousand jobs at once, and what they give, awaited in async code.

    evenbeat worker --app examples/fan_out.py:app     # as many of these as you like, anywhere
    python examples/fan_out.py

A hundred jobs at most can be waited for by another job (`after=`); async code that waits itself
has no such limit, and other coroutines go on meanwhile.
"""

import asyncio
import time

from evenbeat import Evenbeat

app = Evenbeat(name="fan-out")

NUMBERS = range(1_000_003, 1_001_003)


@app.task(max_retries=0)
async def smallest_factor(number: int) -> int:
    """Done by any worker; the numbers that end in 5 are said to bring bad luck."""
    if number % 100 == 55:
        raise ValueError(f"{number} brings bad luck")
    return next((n for n in range(2, int(number**0.5) + 1) if number % n == 0), number)


async def main() -> None:
    started = time.monotonic()
    jobs = await app.enqueue_many_async(smallest_factor.job(number) for number in NUMBERS)
    results = await asyncio.gather(*jobs, return_exceptions=True)
    by_number = dict(zip(NUMBERS, results, strict=True))

    primes = [number for number, factor in by_number.items() if factor == number]
    failures = [error for error in results if isinstance(error, BaseException)]
    print(f"{len(results)} results, {len(primes)} primes, {len(failures)} failures")
    print(f"the last prime is {primes[-1]}")
    print(f"in {time.monotonic() - started:.1f} s; for example, {failures[0]}")
    app.close()


if __name__ == "__main__":
    asyncio.run(main())
