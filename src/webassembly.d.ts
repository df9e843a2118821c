/** The part of the WebAssembly namespace that Holdfast uses; TypeScript has it only in its browser library. */

declare namespace WebAssembly {
  class Module {
    constructor(bytes: Uint8Array<ArrayBuffer>);
  }
  class Instance {
    constructor(module: Module, imports: Record<string, Record<string, unknown>>);
    readonly exports: Record<string, unknown>;
  }
  class Memory {
    constructor(descriptor: {
      initial: number | bigint;
      maximum: number | bigint;
      shared: true;
      /** The size of addresses: "i64" for a 64-bit memory. */
      address?: "i64";
      /** The same in Node 22. */
      index?: "i64";
    });
    readonly buffer: SharedArrayBuffer;
    grow(pages: number | bigint): number | bigint;
  }
  class RuntimeError extends Error {}
  class CompileError extends Error {}
  function validate(bytes: Uint8Array<ArrayBuffer>): boolean;
}
