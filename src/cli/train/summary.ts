/** The results of a job as text tables. */

import { classNames, type EvaluatedModel, type FoldResult, type JobResults } from "../../crossasset/index.js";
import { percent } from "./reporters.js";

/** The folds with their mean, accuracy by scale, and the confusion matrix over all folds. */
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
  const sections = [
    table([head, ...rows, ["mean", "", "", "", percent(mean), percent(majority)]]),
    `accuracy by scale, in minutes\n${table(scaleRows(folds))}`,
    `predictions by label, all folds\n${table(confusionRows(folds))}`,
  ];
  return `${sections.join("\n\n")}\n`;
}

/** The results of one model on one file of bars. */
export function evaluationText({ samples, overall, perScale }: EvaluatedModel): string {
  const { loss, accuracy, majority } = overall;
  return [
    table([
      ["samples", "loss", "accuracy", "majority"],
      [samples.toLocaleString("en"), loss.toFixed(4), percent(accuracy), percent(majority)],
    ]),
    `accuracy by scale, in minutes\n${table([
      ["", ...perScale.map(({ minutes }) => String(minutes))],
      ["%", ...perScale.map((scale) => (100 * scale.accuracy).toFixed(1))],
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
    ["", ...classNames.map((name) => `predicted ${name}`)],
    ...classNames.map((name, label) => [
      name,
      ...classNames.map((_, answer) => sumAt(label, answer).toLocaleString("en")),
    ]),
  ];
}

/** The first column is left-aligned, the others right-aligned. */
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
