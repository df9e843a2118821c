/** The compiler's passes one by one: the calls before and after, with those gone and those new marked. */

import type { TargetedKeyboardEvent } from "preact";
import { useMemo, useState } from "preact/hooks";
import { formatCount } from "../tables/format.js";
import type { StageReport } from "../wire.js";
import { changesOf, type MarkedCall } from "./call-changes.js";

/** Around a change so many kept calls are shown; a longer row of them is folded. */
const around = 2;

export function PassStepper({ stages }: { readonly stages: readonly StageReport[] }) {
  const [chosen, setChosen] = useState(() => busiestOf(stages));
  const [isWhole, setWhole] = useState(false);
  const place = Math.max(0, Math.min(chosen, stages.length - 1));
  const [before, stage] = [stages[place - 1], stages[place]];
  const marked = useMemo(
    () => (stage ? changesOf(before?.calls ?? stage.calls, stage.calls) : []),
    [before, stage],
  );
  if (!stage) return <p class="empty">This plan tells of no passes.</p>;
  const count = (mark: MarkedCall["mark"]): number => marked.filter((call) => call.mark === mark).length;
  const move = (event: TargetedKeyboardEvent<HTMLElement>): void => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(stages.length - 1, place + by));
    setChosen(next);
    event.currentTarget.querySelectorAll("button")[next]?.focus();
  };
  return (
    <div class="passes">
      <div class="pass-list" role="tablist" aria-label="Passes" onKeyDown={move}>
        {stages.map(({ name, calls }, index) => (
          <button
            type="button"
            role="tab"
            key={`${index}-${name}`}
            aria-selected={index === place}
            tabIndex={index === place ? 0 : -1}
            onClick={() => setChosen(index)}
          >
            <span>{name}</span>
            <small>{formatCount(calls.length)}</small>
          </button>
        ))}
      </div>
      <div class="pass" role="tabpanel" aria-label={stage.name}>
        <p>
          <b>{stage.name}</b>: {stage.purpose}
          {stage.effect === "" ? "" : ` – ${stage.effect}`}
        </p>
        <p class="counts">
          {before ? (
            <>
              {formatCount(before.calls.length)} calls before → {formatCount(stage.calls.length)} after:{" "}
              <span class="gone">{formatCount(count("gone"))} gone</span>,{" "}
              <span class="new">{formatCount(count("new"))} new</span>
            </>
          ) : (
            <>{formatCount(stage.calls.length)} calls to begin with</>
          )}
          <label>
            <input
              type="checkbox"
              checked={isWhole}
              onChange={(event) => setWhole(event.currentTarget.checked)}
            />
            Show all calls
          </label>
        </p>
        <ol class="marked-calls">
          {foldKept(marked, isWhole || !before).map((entry, index) =>
            typeof entry === "number" ? (
              <li key={index} class="folded">
                {formatCount(entry)} calls as before
              </li>
            ) : (
              <li key={index} class={entry.mark}>
                <span class="mark">{{ kept: "", gone: "−", new: "+" }[entry.mark]}</span>
                <span class="visually-hidden">{entry.mark}</span>
                <span>{entry.op}</span> <code>{entry.kernel}</code>
              </li>
            ),
          )}
        </ol>
      </div>
    </div>
  );
}

/** The pass that changed the number of calls most: the first thing that one looks for. */
function busiestOf(stages: readonly StageReport[]): number {
  const change = (place: number): number =>
    Math.abs((stages[place]?.calls.length ?? 0) - (stages[place - 1]?.calls.length ?? 0));
  return stages.reduce(
    (best, _, place) => (place > 1 && change(place) > change(best) ? place : best),
    Math.min(1, stages.length - 1),
  );
}

/** The list with long rows of kept calls told as their count. */
function foldKept(marked: readonly MarkedCall[], isWhole: boolean): (MarkedCall | number)[] {
  if (isWhole) return [...marked];
  const isNear = (place: number): boolean => {
    for (let at = place - around; at <= place + around; at++)
      if ((marked[at]?.mark ?? "kept") !== "kept") return true;
    return false;
  };
  const folded: (MarkedCall | number)[] = [];
  for (const [place, call] of marked.entries()) {
    const last = folded.at(-1);
    if (isNear(place)) folded.push(call);
    else if (typeof last === "number") folded[folded.length - 1] = last + 1;
    else folded.push(1);
  }
  return folded.flatMap((entry, place) => (entry === 1 ? (marked[placeIn(folded, place)] ?? entry) : entry));
}

/** Where an entry of the folded list stands in the whole one. */
function placeIn(folded: readonly (MarkedCall | number)[], place: number): number {
  return folded
    .slice(0, place)
    .reduce((sum: number, entry) => sum + (typeof entry === "number" ? entry : 1), 0);
}
