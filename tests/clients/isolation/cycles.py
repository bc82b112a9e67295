"""Checks a history of list appends for the anomalies that an isolation level forbids.

Every append adds a number that occurs only once, so that a list says who wrote before whom. From the lists follow the
dependencies between committed transactions:

    ww  a's append stands immediately before b's in a list
    wr  b read a list that ended with a's append
    rw  a read a list that b's append came after immediately

| level | forbidden |
|---|---|
| read committed | reads of aborted (G1a) or unfinished (G1b) appends; cycles of ww and wr (G0, G1c) |
| repeatable read | that, and any cycle without two rw edges in a row: G-single, lost update |
| serializable | any cycle |

At every level a list only grows at its end, holds each acknowledged append once and no aborted one, and a transaction
reads its own appends. A read that begins after an append was acknowledged sees it: at READ COMMITTED when the
statement begins, above when the transaction's first statement does.

Method: Kingsbury and Alvaro, "Elle: inferring isolation anomalies from experimental observations".
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Iterable

Edges = dict[int, set[int]]


@dataclass
class Operation:
    """One append (`value`) to or one read (`seen`) of a list, and when it was sent."""

    key: int
    value: int | None = None
    seen: list[int] | None = None
    began: float = 0.0


@dataclass
class Transaction:
    number: int
    operations: list[Operation] = field(default_factory=list)
    committed: bool = False
    began: float = 0.0
    acknowledged: float = 0.0

    def appends(self) -> Iterable[Operation]:
        return (op for op in self.operations if op.value is not None)

    def reads(self) -> Iterable[Operation]:
        return (op for op in self.operations if op.seen is not None)


def check(history: list[Transaction], final: dict[int, list[int]], level: str) -> list[str]:
    """What the level forbids and the history shows; empty when all is well. `final`: the lists at the end."""
    writer = {op.value: txn for txn in history for op in txn.appends()}
    problems = lists(history, final, writer)
    problems += reads(history, final, writer)
    problems += staleness(history, level)
    if not problems:  # without one order of the appends there is no graph
        problems += cycles(history, final, writer, level)
    return problems


def lists(history: list[Transaction], final: dict[int, list[int]], writer: dict[int, Transaction]) -> list[str]:
    """Every acknowledged append is there once, and nothing else."""
    problems = []
    for key, values in final.items():
        if len(set(values)) != len(values):
            problems.append(f"list {key} holds an append twice: {values}")
        problems += [f"aborted append {v} in list {key}" for v in values if v not in writer or not writer[v].committed]
    for txn in history:
        for op in txn.appends():
            if txn.committed and op.value not in final.get(op.key, []):
                problems.append(f"lost: append {op.value} to list {op.key} of transaction {txn.number}")
    return problems


def reads(history: list[Transaction], final: dict[int, list[int]], writer: dict[int, Transaction]) -> list[str]:
    """Each read is a beginning of the final list, followed by the transaction's own appends, and nothing unfinished."""
    problems = []
    for txn in history:
        own: dict[int, list[int]] = defaultdict(list)
        for op in txn.operations:
            if op.value is not None:
                own[op.key].append(op.value)
                continue
            where = f"read {op.seen} of list {op.key} in transaction {txn.number}"
            mine = own[op.key]
            others = op.seen[: len(op.seen) - len(mine)] if mine else op.seen
            if mine and op.seen[-len(mine) :] != mine:
                problems.append(f"own appends {mine} missing: {where}")
            elif any(v not in writer or not writer[v].committed for v in others):
                problems.append(f"G1a aborted read: {where}")
            elif others != final.get(op.key, [])[: len(others)]:
                problems.append(f"not a beginning of {final.get(op.key)}: {where}")
            elif others and others[-1] != [o.value for o in writer[others[-1]].appends() if o.key == op.key][-1]:
                problems.append(f"G1b intermediate read: {where}")
    return problems


def staleness(history: list[Transaction], level: str) -> list[str]:
    """What was acknowledged before a read's snapshot was taken is in it."""
    problems = []
    by_key = defaultdict(list)
    for txn in history:
        for op in txn.appends():
            if txn.committed:
                by_key[op.key].append((txn.acknowledged, op.value))
    for txn in history:
        for op in txn.reads():
            since = op.began if level == "read committed" else txn.began
            missing = [v for acknowledged, v in by_key[op.key] if acknowledged < since and v not in op.seen]
            if missing:
                problems.append(f"stale read {op.seen} of list {op.key} in transaction {txn.number}: no {missing}")
    return problems


def cycles(
    history: list[Transaction], final: dict[int, list[int]], writer: dict[int, Transaction], level: str
) -> list[str]:
    ww, wr, rw = edges(history, final, writer)
    forbidden = [("G0", ww), ("G1c", union(ww, wr))]
    if level == "repeatable read":
        follows = union(ww, wr)
        step = {a: {c for b in bs for c in rw.get(b, ())} for a, bs in follows.items()}
        forbidden.append(("G-single", union(follows, step)))
    elif level == "serializable":
        forbidden.append(("cycle", union(union(ww, wr), rw)))
    for name, graph in forbidden:
        cycle = find_cycle(graph)
        if cycle:
            return [f"{name}: {explain(cycle, ww, wr, rw)}"]
    return []


def edges(
    history: list[Transaction], final: dict[int, list[int]], writer: dict[int, Transaction]
) -> tuple[Edges, Edges, Edges]:
    ww: Edges = defaultdict(set)
    wr: Edges = defaultdict(set)
    rw: Edges = defaultdict(set)
    for values in final.values():
        for before, after in zip(values, values[1:]):
            link(ww, writer[before], writer[after])
    for txn in history:
        if not txn.committed:
            continue
        for op in txn.reads():
            values = final.get(op.key, [])
            # One's own appends at the end say nothing about others; what comes before them does.
            others = [v for v in op.seen if writer[v] is not txn]
            if others:
                link(wr, writer[others[-1]], txn)
            after = next((v for v in values[len(others) :] if writer[v] is not txn), None)
            if after is not None:
                link(rw, txn, writer[after])
    return ww, wr, rw


def link(graph: Edges, source: Transaction, target: Transaction) -> None:
    if source is not target:
        graph[source.number].add(target.number)


def union(one: Edges, two: Edges) -> Edges:
    return {node: set(one.get(node, ())) | set(two.get(node, ())) for node in [*one, *two]}


def find_cycle(graph: Edges) -> list[int]:
    """Some cycle, or nothing. Depth first, without recursion."""
    finished: set[int] = set()
    for start in graph:
        path: list[int] = []
        on_path: set[int] = set()
        stack = [(start, iter((start,)))]
        while stack:
            node, children = stack[-1]
            child = next(children, None)
            if child is None:
                stack.pop()
                if path and len(stack) == len(path):
                    left = path.pop()
                    on_path.discard(left)
                    finished.add(left)
            elif child in on_path:
                return path[path.index(child) :] + [child]
            elif child not in finished:
                path.append(child)
                on_path.add(child)
                stack.append((child, iter(graph.get(child, ()))))
    return []


def explain(cycle: list[int], ww: Edges, wr: Edges, rw: Edges) -> str:
    text = str(cycle[0])
    for a, b in zip(cycle, cycle[1:]):
        kinds = [name for name, graph in (("ww", ww), ("wr", wr), ("rw", rw)) if b in graph.get(a, ())]
        text += f" -{'/'.join(kinds) or 'then rw'}-> {b}"
    return text
