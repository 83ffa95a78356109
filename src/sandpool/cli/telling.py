"""A story in order: chapters in, lines out. Pure; the time zone is an argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, tzinfo

from sandpool.cli.chapters import Chapter, Json
from sandpool.kube.local_discovery import Running
from sandpool.model import times
from sandpool.telemetry.reconcile_history import ASKED, TRIED, WROTE

_CALLS = tuple(f"{word} " for word in (WROTE, TRIED, ASKED))
_LAST_MICROSECOND = 999_999


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that happened."""

    when: str  # RFC 3339: when it began; whole seconds where no more is known
    who: str
    seen: str = ""  # what woke the controller
    decided: tuple[str, ...] = ()
    written: tuple[str, ...] = ()  # calls to the API server, failed ones and reads too
    outcome: str = ""
    seconds: float | None = None  # how long it took

    @property
    def moment(self) -> datetime:
        return times.parse(self.when)

    @property
    def order(self) -> datetime:
        """An Event is stamped with its second: it comes after what is known to have happened in that second."""
        moment = self.moment
        return moment if "." in self.when else moment.replace(microsecond=_LAST_MICROSECOND)


def timeline(chapters: Sequence[Chapter]) -> list[Told]:
    """Everything that is known of the first chapter's object and of those after it, oldest first."""
    told = [one for chapter in chapters for one in (*_reconciles(chapter, chapters), *_events(chapter, chapters))]
    return sorted(told, key=lambda one: one.order)


def document(chapters: Sequence[Chapter], told: Sequence[Told]) -> Json:
    first = chapters[0]
    return {
        "kind": first.word,
        "namespace": first.namespace,
        "name": first.name,
        "objects": [
            {"kind": one.word, "name": one.name, "found": one.body is not None, "conditions": one.conditions}
            for one in chapters
        ],
        "story": [asdict(one) for one in told],
    }


def text(chapters: Sequence[Chapter], told: Sequence[Told], zone: tzinfo | None = None) -> str:
    """For people. `zone`: that of the times; None is the machine's own."""
    lines = [*_objects(chapters, zone), "", *_happenings(told, zone)]
    return "".join(f"{_plain(line)}\n" for line in lines)


def _reconciles(chapter: Chapter, chapters: Sequence[Chapter]) -> Iterator[Told]:
    for entry in chapter.entries:
        notes = [note for note in entry["plan"].split("; ") if note]
        began = times.parse(entry["when"]) - timedelta(seconds=entry["seconds"])
        yield Told(
            times.micro(began),
            _who(chapter, chapters),
            entry["trigger"],
            tuple(note for note in notes if not note.startswith(_CALLS)),
            tuple(note for note in notes if note.startswith(_CALLS)),
            entry["outcome"],
            entry["seconds"],
        )


def _events(chapter: Chapter, chapters: Sequence[Chapter]) -> Iterator[Told]:
    for event in chapter.events:
        when = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
        if when:
            count = event.get("count") or 1
            often = f" ({count} times)" if count > 1 else ""
            said = f"{event.get('type', '')} {event.get('reason', '')}: {event.get('message', '')}{often}"
            yield Told(when, f"event of {_who(chapter, chapters)}", outcome=said)


def _who(chapter: Chapter, chapters: Sequence[Chapter]) -> str:
    """The word alone for the object that was asked about."""
    return chapter.word if chapter is chapters[0] else f"{chapter.word} {chapter.name}"


def _objects(chapters: Sequence[Chapter], zone: tzinfo | None) -> Iterator[str]:
    for chapter in chapters:
        if chapter.body is None:
            yield f"{chapter}: there is none now"
            continue
        marked = " (being deleted)" if chapter.body["metadata"].get("deletionTimestamp") else ""
        yield f"{chapter}{marked}"
        yield from (_condition(one, zone) for one in chapter.conditions)
        yield from (_container(one) for one in chapter.containers if _troubled(one))


def _troubled(container: Json) -> bool:
    """Whether it cannot start, failed, or was started more than once."""
    state = container.get("state") or {}
    waits = (state.get("waiting") or {}).get("reason") not in (None, "", "ContainerCreating", "PodInitializing")
    failed = (state.get("terminated") or {}).get("exitCode") not in (None, 0)
    return waits or failed or bool(container.get("restartCount"))


def _container(container: Json) -> str:
    """What became of a container, in its kubelet's words."""
    state, before = container.get("state") or {}, (container.get("lastState") or {}).get("terminated")
    now = next(iter(state), "waiting")
    at = state.get(now) or {}
    words = [word for word in (at.get("reason"), at.get("message")) if word]
    told = f"  container {container.get('name', '')} {now}" + (f": {', '.join(words)}" if words else "")
    if count := container.get("restartCount"):
        told += f"; restarts: {count}"
    if before:
        told += f"; ended before with {before.get('exitCode', 0)} ({before.get('reason') or 'no reason'})"
    return told


def _condition(condition: Json, zone: tzinfo | None) -> str:
    since = condition.get("lastTransitionTime")
    shown = f" since {_local(times.parse(since), zone):%Y-%m-%d %H:%M:%S}" if since else ""
    words = [word for word in (condition.get("reason"), condition.get("message")) if word]
    return f"  {condition['type']} {condition['status']}{shown}" + (f": {', '.join(words)}" if words else "")


def _happenings(told: Sequence[Told], zone: tzinfo | None) -> Iterator[str]:
    width = max((len(one.who) for one in told), default=0)
    day = ""
    for one in told:
        moment = _local(one.moment, zone)
        if day != (today := f"{moment:%Y-%m-%d %Z}"):
            day = today
            yield day
        clock = f"{moment:%H:%M:%S}" + (f".{moment.microsecond // 1000:03d}" if "." in one.when else "    ")
        first, *others = _parts(one)
        yield f"{clock}  {one.who:<{width}}  {first}"
        yield from (" " * (len(clock) + width + 4) + part for part in others)


def _parts(one: Told) -> Iterator[str]:
    if one.seen:
        yield f"woken by {one.seen.replace('+', ', ')}"
    yield from (f"decided: {decision}" for decision in one.decided)
    yield from one.written
    if one.seconds is None:
        yield one.outcome
    else:
        idle = one.outcome == "done" and not one.decided and not one.written
        yield f"{'nothing to do' if idle else one.outcome} ({one.seconds * 1e3:.1f} ms)"


def _plain(line: str) -> str:
    """Messages come from tenants too: they must not move the cursor or begin a line of their own."""
    return "".join(character if character.isprintable() else " " for character in line)


def _local(moment: datetime, zone: tzinfo | None) -> datetime:
    return moment.astimezone(zone)


def nothing_remembered(chapters: Sequence[Chapter], running: Running) -> str:
    """What to say when there is no story."""
    first = chapters[0]
    if running.backend == "none":
        return f"nothing is remembered of {first}: this cluster runs no controllers. Start it without `--backend none`."
    return (
        f"nothing is remembered of {first}: no controller has looked at it since the cluster started at "
        f"{times.parse(running.started):%Y-%m-%d %H:%M:%S %Z}, or so many others came later that it was forgotten. Its "
        "conditions are shown above; any change of the object, a label for instance, is looked at again."
    )
