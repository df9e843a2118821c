/**
 * Runs compiled examples one after the other, each as if it were alone: node example-process.js FILE…
 *
 * Tells what happened as lines of JSON on stdout, which is a pipe and so takes each at once: that an example has started
 * is known even where it ends the process.
 */

import { pathToFileURL } from "node:url";
import { inspect } from "node:util";
import { HoldfastError } from "../../src/errors/index.js";
import { defaultDevice, manualSeed } from "../../src/tensor/index.js";

/** One line of the report: an example, by its place among the files, has started or has ended. */
export type Report =
  | { readonly kind: "started"; readonly index: number }
  | {
      readonly kind: "ended";
      readonly index: number;
      readonly printed: string;
      /** "" when it ended well. */
      readonly trouble: string;
    };

const write = process.stdout.write.bind(process.stdout);
let printed = "";
process.stdout.write = (chunk: string | Uint8Array): boolean => {
  printed += typeof chunk === "string" ? chunk : Buffer.from(chunk).toString();
  return true;
};

function report(line: Report): void {
  write(`${JSON.stringify(line)}\n`);
}

for (const [index, file] of process.argv.slice(2).entries()) {
  // What a fresh process starts from.
  manualSeed(0);
  printed = "";
  report({ kind: "started", index });
  const trouble = await run(file);
  report({ kind: "ended", index, printed, trouble });
}
// Whatever an example has left running ends here; what it printed after its last line was not its output anyway.
process.exit();

async function run(file: string): Promise<string> {
  try {
    await import(pathToFileURL(file).href);
    // A promise that was rejected and awaited by nobody ends the process now, while the example is the one to blame.
    await new Promise(setImmediate);
  } catch (error) {
    closeDevices();
    return inspect(error);
  }
  const left = closeDevices();
  return left === 0 ? "" : `It left ${left} device(s) open. Close what it opens: cpu.close().`;
}

/** Closes what an example has left open, so that the next one finds what a fresh process has; how many there were. */
function closeDevices(): number {
  for (let count = 0; ; count++) {
    try {
      defaultDevice().close();
    } catch (error) {
      if (error instanceof HoldfastError && error.code === "NO_DEVICE") return count;
      throw error;
    }
  }
}
