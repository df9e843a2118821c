/** A folder as text: a run, or a list of runs. */

import { HoldfastError } from "../errors/index.js";
import { findRun, findShown } from "./run-list.js";
import { listLines, RunView } from "./run-view.js";
import { describeRun, describeRuns, type TextOptions } from "./text-view.js";

export type { TextOptions };

export interface TextView {
  /** The current text. */
  print(options?: TextOptions): string;
  /** True while a run in it is training, so that the text may change. */
  readonly isLive: boolean;
}

/** For a run's folder, the run. For a folder of runs, its only run or a list. */
export function viewAsText(path: string): TextView {
  const shown = findShown(path);
  const views = new Map<string, RunView>();
  const linesNow = () => {
    const lines = listLines(shown);
    return shown.run === undefined ? lines : lines.filter(({ name }) => name === shown.run);
  };
  return {
    print(options) {
      const lines = linesNow();
      const [line] = lines;
      const run = line && lines.length === 1 ? findRun(shown, line.name) : undefined;
      if (!line || !run) return describeRuns(lines, options);
      if (run.rejection !== undefined) throw new HoldfastError("BAD_FILE", `${run.path}: ${run.rejection}`);
      const view = views.get(run.path) ?? new RunView(run);
      views.set(run.path, view);
      return describeRun(line, view, options);
    },
    get isLive() {
      return linesNow().some((line) => line.isLive);
    },
  };
}
