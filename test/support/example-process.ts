/**
 * Runs compiled examples one after the other, each as in a fresh process: node example-process.js FILE…
 *
 * Reports as lines of JSON on stdout, which is a pipe and so gets each line at once: the start of an example
 * is known even if it ends the process.
 */

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { inspect } from "node:util";

/** One line of the report: an example, by its index among the files, has started or has ended. */
export type Report =
  | { readonly kind: "started"; readonly index: number }
  | {
      readonly kind: "ended";
      readonly index: number;
      readonly printed: string;
      /** "" if it succeeded. */
      readonly failure: string;
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

/** The library, loaded before the first example that uses it: loading takes most of a short process. */
let library:
  | (typeof import("../../src/errors/index.js") & typeof import("../../src/tensor/index.js"))
  | undefined;

for (const [index, file] of process.argv.slice(2).entries()) {
  if (readFileSync(file, "utf8").includes('"holdfast'))
    library ??= {
      ...(await import("../../src/errors/index.js")),
      ...(await import("../../src/tensor/index.js")),
    };
  // The state of a fresh process.
  library?.manualSeed(0);
  printed = "";
  report({ kind: "started", index });
  const failure = await run(file);
  report({ kind: "ended", index, printed, failure });
}
// Work that an example has left running ends here; output after its last line does not count.
process.exit();

async function run(file: string): Promise<string> {
  try {
    await import(pathToFileURL(file).href);
    // An unhandled rejection ends the process now, while this example is responsible.
    await new Promise(setImmediate);
  } catch (error) {
    closeDevices();
    return inspect(error);
  }
  const left = closeDevices();
  return left === 0 ? "" : `It left ${left} device(s) open. Close what it opens: cpu.close().`;
}

/**
 * Closes the devices that an example has left open, so that the next one starts like a fresh process; returns
 * their number.
 */
function closeDevices(): number {
  if (!library) return 0;
  const { defaultDevice, HoldfastError } = library;
  for (let count = 0; ; count++) {
    try {
      defaultDevice().close();
    } catch (error) {
      if (error instanceof HoldfastError && error.code === "NO_DEVICE") return count;
      throw error;
    }
  }
}
