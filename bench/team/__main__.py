"""A team under faults: the promises about messages, effects and files, and the costs.

Four workers (`nanobot gateway`, each a process with its own home, restarted whenever it ends) share
a real PostgreSQL and a folder. People write to them on Telegram by webhook, privately and in
groups, on WhatsApp Cloud and through the API, through a load balancer, in bursts. The model takes
200 ms. Some messages ask for two tools with effects, or for one with the owner's approval, in
their chat or at any worker's socket, and some bring a file. In this time workers are killed,
stopped beyond their lease and continued. PostgreSQL is stopped as by a crash, fails over to a
synchronous standby (also while it hangs and continues afterwards), ends connections, and commits
without answering. In the end:

- every message is answered, in the order of its chat, and twice only if a worker died while it was
  sending,
- an effect happened once if its conversation has its result, at most once if it was interrupted,
  and never if the owner denied it; no question has its buttons any more,
- every conversation is complete: each message is in its file once, under increasing numbers, with
  its file,
- platforms got no requests that they reject,
- no worker logged a traceback.

    python -m bench.team                 500 chats of 20 messages, 250 faults (half an hour)
    python -m bench.team --short         12 chats of 4, a fault of each kind (30 seconds)
    python -m bench.team --chats 50 --messages 10 --kill 10 --pause 5 …
    python -m bench.team --memory        memory, Dream and /forget (see bench.team.memory)
    python -m bench.team --freshness     500 turns of one chat at two workers in turn, over NFS
    python -m bench.team --measure       healing, rolling restart, throughput, cost of a turn
    python -m bench.team --rest          3 workers and 3 isolated messages a second (90 seconds)
    python -m bench.team --simulate      looks and processors for up to a million people
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from bench.reporting import report
from bench.team.campaign import Size, campaign
from bench.team.fault_injector import ANSWER, CUT, FAILOVER, HANG, KILL, PAUSE, STOP
from bench.team.freshness import alternate
from bench.team.measurements import find_missed_targets, measure
from bench.team.memory import FORGETTING, HARMS, MemoryCampaign, remember
from bench.team.rest import at_rest
from bench.team.simulation import simulate

_PEOPLE = (1_000, 10_000, 100_000, 300_000, 1_000_000)
_WHOLE = {KILL: 100, PAUSE: 50, STOP: 20, FAILOVER: 5, HANG: 5, CUT: 50, ANSWER: 20}


def main() -> int:
    """Run the command line. The exit code is 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a fault of each kind")
    parser.add_argument("--measure", action="store_true", help="what it costs, without faults")
    parser.add_argument("--rest", action="store_true", help="looks and costs of isolated messages")
    parser.add_argument("--simulate", action="store_true", help="costs of up to a million people")
    parser.add_argument("--memory", action="store_true", help="what is remembered")
    parser.add_argument("--freshness", action="store_true", help="a chat that changes workers")
    parser.add_argument("--seconds", type=float, default=0.0, help="for which NFS attributes last")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--chats", type=int, default=500)
    parser.add_argument("--messages", type=int, default=20, help="of each chat")
    parser.add_argument("--at-once", type=int, default=40, help="chats that talk at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", default="", metavar="D", help="leave homes and logs there")
    parser.add_argument("--json", action="store_true")
    for kind, count in _WHOLE.items():
        parser.add_argument(f"--{kind}", type=int, default=count, metavar="N")
    options = parser.parse_args()
    if options.measure:
        return asyncio.run(measure(short=options.short))
    if options.simulate:
        for people in _PEOPLE:
            report(f"team: {people:,} people, simulated", simulate(people).figures())
        return 0
    if options.rest:
        resting = asyncio.run(at_rest(workers=3, rate=3.0, warm=30.0, window=40.0))
        report("team: at rest", resting)
        return 1 if find_missed_targets(resting) else 0
    if options.memory:
        harms = dict.fromkeys((*HARMS, FORGETTING), 1 if options.short else 12)
        form = MemoryCampaign(3, 3 if options.short else 12, harms, share=0.5)
        figures, faults = asyncio.run(remember(form, options.seed, options.keep))
        report("memory of a team", figures | {"failures": faults})
        return 1 if faults else 0
    if options.freshness:
        turns = 10 if options.short else 500
        figures, faults = asyncio.run(alternate(turns, options.seconds, options.keep))
        report("two workers alternate on one chat", figures | {"failures": faults})
        return 1 if faults else 0
    plan = {kind: getattr(options, kind) for kind in _WHOLE}
    size = Size(options.workers, options.chats, options.messages, options.at_once, plan)
    if options.short:
        size = Size(3, 12, 4, 12, dict.fromkeys(_WHOLE, 1))
    figures, faults = asyncio.run(campaign(size, options.seed, options.keep))
    report("team", figures | {"failures": faults})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
