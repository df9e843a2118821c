/** The compiler's passes one by one: the calls before and after, with removed and added ones marked. */

import type { TargetedKeyboardEvent } from "preact";
import { useMemo, useState } from "preact/hooks";
import { formatCount } from "../tables/format.js";
import type { StageReport } from "../wire.js";
import { changesOf, type MarkedCall } from "./call-changes.js";

/** Unchanged calls shown around a change; longer runs are folded. */
const contextCalls = 2;

export function PassStepper({ stages }: { readonly stages: readonly StageReport[] }) {
  const [chosen, setChosen] = useState(() => largestChange(stages));
  const [isWhole, setWhole] = useState(false);
  const selected = Math.max(0, Math.min(chosen, stages.length - 1));
  const [before, stage] = [stages[selected - 1], stages[selected]];
  const marked = useMemo(
    () => (stage ? changesOf(before?.calls ?? stage.calls, stage.calls) : []),
    [before, stage],
  );
  if (!stage) return <p class="empty">This plan has no record of its passes.</p>;
  const count = (mark: MarkedCall["mark"]): number => marked.filter((call) => call.mark === mark).length;
  const move = (event: TargetedKeyboardEvent<HTMLElement>): void => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(stages.length - 1, selected + by));
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
            aria-selected={index === selected}
            tabIndex={index === selected ? 0 : -1}
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
            <span>
              {formatCount(before.calls.length)} calls before → {formatCount(stage.calls.length)} after:{" "}
              <span class="removed">{formatCount(count("removed"))} removed</span>,{" "}
              <span class="added">{formatCount(count("added"))} added</span>
            </span>
          ) : (
            <>{formatCount(stage.calls.length)} calls in the trace</>
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
                {formatCount(entry)} unchanged calls
              </li>
            ) : (
              <li key={index} class={entry.mark}>
                <span class="mark">{{ kept: "", removed: "−", added: "+" }[entry.mark]}</span>
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

/** The pass that changed the number of calls most: the initial selection. */
function largestChange(stages: readonly StageReport[]): number {
  const change = (index: number): number =>
    Math.abs((stages[index]?.calls.length ?? 0) - (stages[index - 1]?.calls.length ?? 0));
  return stages.reduce(
    (best, _, index) => (index > 1 && change(index) > change(best) ? index : best),
    Math.min(1, stages.length - 1),
  );
}

/** The list with long runs of unchanged calls folded to a count. */
function foldKept(marked: readonly MarkedCall[], isWhole: boolean): (MarkedCall | number)[] {
  if (isWhole) return [...marked];
  const isNear = (index: number): boolean => {
    for (let at = index - contextCalls; at <= index + contextCalls; at++)
      if ((marked[at]?.mark ?? "kept") !== "kept") return true;
    return false;
  };
  const folded: (MarkedCall | number)[] = [];
  for (const [index, call] of marked.entries()) {
    const last = folded.at(-1);
    if (isNear(index)) folded.push(call);
    else if (typeof last === "number") folded[folded.length - 1] = last + 1;
    else folded.push(1);
  }
  return folded.flatMap((entry, index) => (entry === 1 ? (marked[indexIn(folded, index)] ?? entry) : entry));
}

/** The index of a folded entry in the whole list. */
function indexIn(folded: readonly (MarkedCall | number)[], index: number): number {
  return folded
    .slice(0, index)
    .reduce((sum: number, entry) => sum + (typeof entry === "number" ? entry : 1), 0);
}
