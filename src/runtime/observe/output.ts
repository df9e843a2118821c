/** The text output of a runtime: stderr by default, with a progress line if stderr is a terminal. */

import { writeSync } from "node:fs";
import { systemClock } from "../../units/index.js";
import { ProgressLine } from "./progress-line.js";

export interface Output {
  readonly print: (text: string) => void;
  /** Undefined if stderr is no terminal, or if the caller prints. */
  readonly progress: ProgressLine | undefined;
}

/** Opens the output of a runtime. `print` replaces stderr. */
export function openOutput(print: ((text: string) => void) | undefined): Output {
  if (print) return { print, progress: undefined };
  const progress = progressOnTerminal();
  return {
    progress,
    print(text) {
      progress?.clear();
      writeSync(2, text);
    },
  };
}

function progressOnTerminal(): ProgressLine | undefined {
  const { stderr } = process;
  if (!stderr.isTTY) return undefined;
  return new ProgressLine({
    write: (text) => void writeSync(2, text),
    clock: systemClock,
    columns: () => stderr.columns || 80,
  });
}
