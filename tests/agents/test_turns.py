"""Turns at a client: one after the other, in the order of asking, over event loops and threads."""

from __future__ import annotations

import asyncio
import threading

from harness.agents.clients import turn


def test_turns_come_in_the_order_of_asking() -> None:
    client, order = [1], list[str]()  # a list is neither hashable nor weakly referable

    async def use(name: str) -> None:
        async with turn(client):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in "abc":
                tasks.create_task(use(name))

    asyncio.run(main())
    assert order == ["a in", "a out", "b in", "b out", "c in", "c out"]


def test_another_event_loop_waits_its_turn() -> None:
    client, inside, peak = object(), 0, 0
    entered = threading.Barrier(4)

    async def use() -> None:
        nonlocal inside, peak
        for _ in range(20):
            async with turn(client):
                inside += 1
                peak = max(peak, inside)
                await asyncio.sleep(0)
                inside -= 1

    def run() -> None:
        entered.wait()
        asyncio.run(use())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (inside, peak, [thread.is_alive() for thread in threads]) == (0, 1, [False] * 4)


def test_who_waited_in_a_loop_that_is_closed_is_passed_over() -> None:
    client, order = object(), list[str]()

    async def wait() -> None:
        async with turn(client):
            order.append("the one that is gone")

    async def main() -> None:
        async with turn(client):
            gone = asyncio.new_event_loop()
            task = gone.create_task(wait())
            await asyncio.to_thread(gone.run_until_complete, gone.create_task(asyncio.sleep(0)))
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is to be left as it is
            gone.close()
        async with asyncio.timeout(60), turn(client):
            order.append("the next one")

    asyncio.run(main())
    assert order == ["the next one"]


def test_who_is_cancelled_while_waiting_takes_no_turn() -> None:
    client = object()

    async def main() -> list[str]:
        order: list[str] = []

        async def use(name: str, go: asyncio.Event) -> None:
            async with turn(client):
                order.append(name)
                await go.wait()

        first, rest = asyncio.Event(), asyncio.Event()
        rest.set()
        holder = asyncio.create_task(use("holder", first))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(use(name, rest)) for name in ("cancelled", "called", "last")]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        first.set()
        await holder  # has called the next one, who is cancelled before it can go
        waiting[1].cancel()
        async with asyncio.timeout(60):
            await waiting[2]
        assert [task.cancelled() for task in waiting] == [True, True, False]
        return order

    assert asyncio.run(main()) == ["holder", "last"]
    assert asyncio.run(main()) == ["holder", "last"]  # nobody has it any more
