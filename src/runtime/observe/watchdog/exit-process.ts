/**
 * Ends a process whose main thread is stuck. In a worker, `process.exit` ends only the worker, and `process.abort`
 * gives no exit code; libc's `_exit` ends the whole process at once.
 */

import { loadNative } from "../../../units/index.js";

export function loadExit(): Promise<(code: number) => void> {
  return loadNative(async () => {
    const { default: koffi } = await import("koffi");
    return koffi.load(null).func("void _exit(int code)");
  });
}
