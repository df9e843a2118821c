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
    constructor(descriptor: { initial: number; maximum: number; shared: true });
    readonly buffer: SharedArrayBuffer;
    grow(pages: number): number;
  }
  class RuntimeError extends Error {}
  class CompileError extends Error {}
  function validate(bytes: Uint8Array<ArrayBuffer>): boolean;
}
