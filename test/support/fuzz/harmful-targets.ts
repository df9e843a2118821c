/** Targets that do harm on purpose, as the red proof of the fuzzers. */

import type { FuzzTarget } from "./targets.js";

function harm(name: string, doHarm: () => void): readonly [string, FuzzTarget] {
  return [name, { seeds: () => [new Uint8Array([1, 2, 3])], open: () => doHarm }];
}

export const fuzzTargets: Readonly<Record<string, FuzzTarget>> = Object.fromEntries([
  harm("nothing", () => undefined),
  harm("raw error", () => {
    throw new TypeError("injected");
  }),
  harm("lost rejection", () => {
    void Promise.reject(new Error("injected"));
  }),
  harm("too much memory", () => {
    const held = Array.from({ length: 16 }, () => Buffer.alloc(2 ** 24, 1));
    held.length = 0;
  }),
  harm("crash", () => {
    process.abort();
  }),
  harm("hang", () => {
    // A blocked thread, like one in an endless loop, but it takes no processor.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  }),
]);
