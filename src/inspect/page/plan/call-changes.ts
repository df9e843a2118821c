/** The changes of a pass: removed and added calls, as a diff. */

import type { StageCall } from "../wire.js";

export interface MarkedCall extends StageCall {
  readonly mark: "kept" | "removed" | "added";
}

/** With more changes, the diff is not minimal: the time grows with their square. */
const maxChanges = 1500;

/**
 * Merges both lists in order, like a patch: the minimal diff (Myers). With very many changes, the middle is shown as all removed,
 * then all added.
 */
export function changesOf(before: readonly StageCall[], after: readonly StageCall[]): MarkedCall[] {
  const keys = { before: before.map(keyOf), after: after.map(keyOf) };
  let start = 0;
  while (start < before.length && start < after.length && keys.before[start] === keys.after[start]) start++;
  let end = 0;
  const maxCommon = Math.min(before.length, after.length) - start;
  while (end < maxCommon && keys.before.at(-1 - end) === keys.after.at(-1 - end)) end++;
  const mark = (calls: readonly StageCall[], how: MarkedCall["mark"]): MarkedCall[] =>
    calls.map(({ op, kernel }) => ({ op, kernel, mark: how }));
  return [
    ...mark(after.slice(0, start), "kept"),
    ...middleChanges(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...mark(after.slice(after.length - end), "kept"),
  ];
}

function keyOf({ op, kernel }: StageCall): string {
  return `${op}\n${kernel}`;
}

function middleChanges(before: readonly StageCall[], after: readonly StageCall[]): MarkedCall[] {
  const path = shortestPath(before.map(keyOf), after.map(keyOf));
  if (path === undefined)
    return [
      ...before.map((call) => ({ ...call, mark: "removed" as const })),
      ...after.map((call) => ({ ...call, mark: "added" as const })),
    ];
  let [x, y] = [0, 0];
  return path.flatMap((mark) => {
    const call = mark === "added" ? after[y] : before[x];
    if (mark !== "added") x++;
    if (mark !== "removed") y++;
    return call ? [{ ...call, mark }] : [];
  });
}

/** The furthest reach on each diagonal per number of changes; undefined if there are too many. */
function shortestPath(before: readonly string[], after: readonly string[]): MarkedCall["mark"][] | undefined {
  const limit = Math.min(maxChanges, before.length + after.length);
  const reaches: Map<number, number>[] = [];
  let last = new Map<number, number>([[1, 0]]);
  for (let changes = 0; changes <= limit; changes++) {
    const reach = new Map<number, number>();
    reaches.push(last);
    for (let diagonal = -changes; diagonal <= changes; diagonal += 2) {
      let x = comesDown(last, diagonal, changes)
        ? (last.get(diagonal + 1) ?? 0)
        : (last.get(diagonal - 1) ?? 0) + 1;
      while (x < before.length && x - diagonal < after.length && before[x] === after[x - diagonal]) x++;
      reach.set(diagonal, x);
      if (x >= before.length && x - diagonal >= after.length)
        return walkBack(reaches, before.length, after.length);
    }
    last = reach;
  }
  return undefined;
}

function comesDown(last: ReadonlyMap<number, number>, diagonal: number, changes: number): boolean {
  if (diagonal === -changes) return true;
  return diagonal !== changes && (last.get(diagonal - 1) ?? -1) < (last.get(diagonal + 1) ?? -1);
}

function walkBack(
  reaches: readonly Map<number, number>[],
  width: number,
  height: number,
): MarkedCall["mark"][] {
  const path: MarkedCall["mark"][] = [];
  let [x, y] = [width, height];
  for (let changes = reaches.length - 1; changes >= 0; changes--) {
    const last = reaches[changes] ?? new Map<number, number>();
    const isDown = comesDown(last, x - y, changes);
    const from = isDown ? x - y + 1 : x - y - 1;
    const fromX = last.get(from) ?? 0;
    const fromY = fromX - from;
    while (x > fromX && y > fromY && x > 0 && y > 0) {
      path.push("kept");
      x--;
      y--;
    }
    if (changes > 0) path.push(isDown ? "added" : "removed");
    [x, y] = [fromX, fromY];
  }
  return path.reverse();
}
