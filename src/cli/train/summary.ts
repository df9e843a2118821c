/** The figures of a job as tables that a person can read. */

import { classNames, type EvaluatedModel, type FoldResult, type JobResults } from "../../crossasset/index.js";
import { percent } from "./reporters.js";

/** The folds with their mean, accuracy by scale, and who was taken for whom over all folds. */
export function summaryText({ folds, wf_mean: mean, majority_mean: majority }: JobResults): string {
  const count = (value: number): string => value.toLocaleString("en");
  const head = ["", "train", "test", "loss", "accuracy", "majority"];
  const rows = folds.map(({ fold, trainSamples, testSamples, test }) => [
    `fold ${fold + 1}`,
    count(trainSamples),
    count(testSamples),
    test.loss.toFixed(4),
    percent(test.accuracy),
    percent(test.majority),
  ]);
  const parts = [
    table([head, ...rows, ["mean", "", "", "", percent(mean), percent(majority)]]),
    `accuracy by scale, in minutes\n${table(scaleRows(folds))}`,
    `answers by label, all folds\n${table(confusionRows(folds))}`,
  ];
  return `${parts.join("\n\n")}\n`;
}

/** The same of one model and one set of bars. */
export function evaluationText({ samples, overall, perScale }: EvaluatedModel): string {
  const { loss, accuracy, majority } = overall;
  return [
    table([
      ["samples", "loss", "accuracy", "majority"],
      [samples.toLocaleString("en"), loss.toFixed(4), percent(accuracy), percent(majority)],
    ]),
    `accuracy by scale, in minutes\n${table([
      ["", ...perScale.map(({ minutes }) => String(minutes))],
      ["%", ...perScale.map((one) => (100 * one.accuracy).toFixed(1))],
    ])}`,
  ].join("\n\n");
}

function scaleRows(folds: readonly FoldResult[]): string[][] {
  const head = ["", ...(folds[0]?.perScale ?? []).map(({ minutes }) => String(minutes))];
  const rows = folds.map(({ fold, perScale }) => [
    `fold ${fold + 1}`,
    ...perScale.map(({ accuracy }) => (100 * accuracy).toFixed(1)),
  ]);
  return [head, ...rows];
}

function confusionRows(folds: readonly FoldResult[]): string[][] {
  const sumAt = (label: number, answer: number): number =>
    folds.reduce((sum, { test }) => sum + (test.confusion[label]?.[answer] ?? 0), 0);
  return [
    ["", ...classNames.map((name) => `said ${name}`)],
    ...classNames.map((name, label) => [
      name,
      ...classNames.map((_, answer) => sumAt(label, answer).toLocaleString("en")),
    ]),
  ];
}

/** The first column to the left, the others to the right. */
function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) =>
          column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0),
        )
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
