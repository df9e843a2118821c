/** The tables of `npm run bench:programs`, and the checks that all contenders trained the same model and that it learned. */

import type { Outcome } from "./contenders.js";
import { type ProgramName, workload } from "./workloads.js";

/** One run of each contender on one program. */
export interface Row {
  readonly program: ProgramName;
  readonly outcomes: ReadonlyMap<string, Outcome>;
}

const missing = "—";

/** Milliseconds of a step, with the ratio to the first contender's. */
export function speedTable(rows: readonly Row[], contenders: readonly string[]): string {
  const [ours = ""] = contenders;
  const lines = rows.map(({ program, outcomes }) => {
    const mine = outcomes.get(ours);
    const cells = contenders.map((name) => {
      const outcome = outcomes.get(name);
      if (!outcome || "absence" in outcome) return missing;
      const { stepMs } = outcome.report;
      const ratio =
        mine && "report" in mine && name !== ours ? ` (${formatRatio(stepMs / mine.report.stepMs)})` : "";
      return `${formatMs(stepMs)}${ratio}`;
    });
    return [program, ...cells];
  });
  return tableOf([["ms per step (× Holdfast)", ...contenders], ...lines]);
}

/** The mean loss of the first and of the last four steps. */
export function lossTable(rows: readonly Row[], contenders: readonly string[]): string {
  const lines = rows.map(({ program, outcomes }) => [
    program,
    ...contenders.map((name) => {
      const outcome = outcomes.get(name);
      if (!outcome || "absence" in outcome) return missing;
      const { lossBefore, lossAfter } = outcome.report;
      return `${lossBefore.toPrecision(4)} → ${lossAfter.toPrecision(3)}`;
    }),
  ]);
  return tableOf([["loss before → after", ...contenders], ...lines]);
}

/** Why cells are empty, and everything that makes two cells incomparable. */
export function remarks(rows: readonly Row[]): string[] {
  return rows.flatMap(({ program, outcomes }) => {
    const { tolerance } = workload(program);
    const expected = [...outcomes.values()].find((outcome) => "report" in outcome);
    return [...outcomes].flatMap(([name, outcome]) => {
      if ("absence" in outcome) return [`${program}, ${name}: ${missing}, ${outcome.absence}`];
      const { firstLosses, lossBefore, lossAfter } = outcome.report;
      const said: string[] = [];
      const isNear = firstLosses.every((loss, index) => {
        const other = expected && "report" in expected ? (expected.report.firstLosses[index] ?? loss) : loss;
        return Math.abs(loss - other) <= tolerance * Math.abs(other);
      });
      if (!isNear)
        said.push(
          `${program}, ${name}: the first losses ${firstLosses} are not the others', so this is another model`,
        );
      if (!(lossAfter < lossBefore)) said.push(`${program}, ${name}: THE LOSS DID NOT FALL`);
      return said;
    });
  });
}

export function tableOf(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, index) => Math.max(...rows.map((row) => row[index]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, index) => (index === 0 ? cell.padEnd(widths[index]!) : cell.padStart(widths[index]!)))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

const formatMs = (ms: number): string => ms.toFixed(ms < 10 ? 2 : ms < 100 ? 1 : 0);
const formatRatio = (ratio: number): string => ratio.toFixed(ratio < 10 ? 1 : 0);
