/** The events of a CrossAsset job as text. */

import type { JobEvent } from "../../crossasset/index.js";
import { formatBytes, formatDuration } from "../../units/index.js";
import { type EventText, percent, skippedText, stepLine, throughputText } from "./reporters.js";

export function describeJobEvent(event: JobEvent): EventText {
  if (event.kind === "step") {
    const { fold, folds, epoch, epochs, samplesPerSecond } = event;
    const position = [`fold ${fold + 1}/${folds}`, `epoch ${epoch + 1}/${epochs}`];
    const text = stepLine(position, event, throughputText(samplesPerSecond, "samples"));
    return { kind: "step", figures: event, text };
  }
  if (event.kind === "phase") return { kind: "phase", text: event.phase };
  const text = lineOf(event);
  return text === undefined ? undefined : { kind: "line", text };
}

/** Undefined for events that only the JSON output shows. */
function lineOf(event: Exclude<JobEvent, { kind: "step" | "phase" }>): string | undefined {
  switch (event.kind) {
    case "device":
      return `device   ${event.name}, budget ${formatBytes(event.budgetBytes)}`;
    case "data": {
      const { source, bars, samples, isCached, seconds } = event;
      const features = isCached ? "features from the cache" : `features in ${formatDuration(1000 * seconds)}`;
      return `data     ${bars.toLocaleString("en")} bars from ${source}, ${samples.toLocaleString("en")} samples, ${features}`;
    }
    case "fold":
      return `fold ${event.fold + 1}/${event.folds}  ${event.trainSamples.toLocaleString("en")} training samples, ${event.testSamples.toLocaleString("en")} test samples`;
    case "epoch": {
      const { fold, folds, epoch, epochs, record } = event;
      const { accuracy, loss: testLoss } = record.figures;
      const test =
        accuracy === undefined ? "" : `  test ${(testLoss ?? 0).toFixed(4)}, accuracy ${percent(accuracy)}`;
      return (
        `fold ${fold + 1}/${folds}  epoch ${epoch + 1}/${epochs}  loss ${record.loss.toFixed(4)}${test}  ` +
        `${throughputText(record.samplesPerSecond, "samples")}  ${formatDuration(1000 * record.seconds)}${skippedText(record.skipped)}`
      );
    }
    case "resumed":
      return `resumed at step ${event.step.toLocaleString("en")} from ${event.file}`;
    case "checkpoint":
    case "fold end":
    case "end":
      return undefined;
  }
}
