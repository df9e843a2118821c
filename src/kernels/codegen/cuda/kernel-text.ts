/** The source of a CUDA kernel or device function while it is being printed: parameters, lines, and the prelude functions it calls. */

import type { CudaCode, KernelSource, Parameter } from "../../../driver/index.js";
import { passedType } from "../../../ir/index.js";
import { pdlWait } from "./intrinsics/pdl.js";
import { type PreludeName, preludeOf } from "./prelude.js";

/** A parameter of a kernel. */
export interface NamedParameter {
  readonly kind: Parameter;
  readonly type: string;
  readonly name: string;
}

/** A device function that a combo kernel calls. */
export interface PrintedFunction {
  readonly code: string;
  readonly parameters: readonly NamedParameter[];
  /** The prelude functions it calls, which the kernel has to contain. */
  readonly called: ReadonlySet<PreludeName>;
}

interface Line {
  readonly text: string;
  /** The local that the line defines; without a use the line is dropped. */
  readonly defines?: string;
}

const scalarTypes = { u32: "unsigned", i32: "int", f32: "float", f64: "double" } as const;

export class KernelText {
  readonly #parameters: NamedParameter[] = [];
  readonly #lines: Line[] = [];
  readonly #called = new Set<PreludeName>();
  #depth: number;
  #locals = 0;

  /** True if the approximate functions of `intrinsics/fast-math.ts` are used. */
  readonly usesFastMath: boolean;

  /** `depth`: the indentation of its lines. */
  constructor({
    depth = 1,
    usesFastMath = false,
  }: { readonly depth?: number; readonly usesFastMath?: boolean } = {}) {
    this.#depth = depth;
    this.usesFastMath = usesFastMath;
  }

  /** Declares the next parameter, a pointer. */
  pointer(kind: "in" | "out" | "inout" | "partial-out", type: string, name: string): string {
    this.#parameters.push({ kind, type: kind === "in" ? `const ${type}*` : `${type}*`, name });
    return name;
  }

  /** Declares the next parameter, passed by value. */
  scalar(type: keyof typeof scalarTypes | "i64", name: string): string {
    const kind = type === "u32" ? type : passedType(type);
    this.#parameters.push({ kind, type: scalarTypes[kind], name });
    return name;
  }

  line(text: string): void {
    this.#lines.push({ text: `${"  ".repeat(this.#depth)}${text}` });
  }

  /** Defines a constant local; it is dropped if nothing reads it. */
  define(type: string, name: string, value: string): void {
    this.#lines.push({ text: `${"  ".repeat(this.#depth)}${type} ${name} = ${value};`, defines: name });
  }

  /** A braced block after a loop or condition. */
  block(head: string, body: () => void): void {
    this.line(`${head} {`);
    this.#depth++;
    body();
    this.#depth--;
    this.line("}");
  }

  /** An unrolled loop with a constant trip count. */
  unrolled(counter: string, count: number, body: () => void): void {
    this.line("#pragma unroll");
    this.block(`for (unsigned ${counter} = 0u; ${counter} < ${count}u; ${counter}++)`, body);
  }

  /** A name that is unique in the kernel. */
  freshName(): string {
    return `v${this.#locals++}`;
  }

  /** Defines a local with a fresh name. */
  keep(type: string, value: string): string {
    const name = this.freshName();
    this.define(`const ${type}`, name, value);
    return name;
  }

  /** Adds a prelude function to the kernel's source, and returns its name. */
  use(name: PreludeName): string {
    this.#called.add(name);
    return name;
  }

  call(name: PreludeName, ...values: readonly string[]): string {
    return `${this.use(name)}(${values.join(", ")})`;
  }

  /** The lines as a fragment of a larger kernel, and the prelude functions that they call. */
  fragment(): { readonly called: ReadonlySet<PreludeName>; readonly lines: string } {
    const { body, called } = this.#print();
    return { called, lines: body };
  }

  /** The complete kernel. `blocksPerSm`: see `launchBounds`; `sharedBytes`: dynamic shared memory. */
  toKernel(name: string, threads: number, blocksPerSm?: number, sharedBytes?: number): KernelSource {
    const { signature, body, called } = this.#print();
    const entry = `hf_${name.replace(/\W+/g, "_")}`;
    const cuda: CudaCode = {
      ...{ entry, threads, hasGridDependencyWait: true },
      ...(sharedBytes !== undefined && { sharedBytes }),
      code: `${preludeOf(new Set([...called, "gridDependencyWait"]))}extern "C" __global__ void ${launchBounds(threads, blocksPerSm)} ${entry}(
    ${signature.join(",\n    ")}) {
${called.has("gridDependencyWait") ? "" : pdlWait}${body}
}
`,
    };
    return { name, parameters: this.#parameters.map(({ kind }) => kind), cuda };
  }

  /** A device function. */
  toFunction(name: string, leadingParameters: readonly string[]): PrintedFunction {
    const { signature, body, called, isRead } = this.#print();
    const named = leadingParameters.map((parameter) => {
      const space = parameter.lastIndexOf(" ");
      return isRead(parameter.slice(space + 1)) ? parameter : parameter.slice(0, space);
    });
    const code = `static __device__ __forceinline__ void ${name}(
    ${[...named, ...signature].join(",\n    ")}) {
${body}
}
`;
    return { code, parameters: this.#parameters, called };
  }

  #print(): {
    signature: readonly string[];
    body: string;
    called: ReadonlySet<PreludeName>;
    isRead(name: string): boolean;
  } {
    const lines = dropDeadDefinitions(this.#lines);
    const nameCounts = countNames(lines);
    return {
      // An unused parameter has no name, or the compiler would warn.
      signature: this.#parameters.map(({ type, name }) => (nameCounts.has(name) ? `${type} ${name}` : type)),
      isRead: (name) => nameCounts.has(name),
      body: lines.map(({ text }) => text).join("\n"),
      // Functions that only dropped lines have called are dropped as well.
      called: new Set([...this.#called].filter((name) => nameCounts.has(name))),
    };
  }
}

/** C++: __launch_bounds__. `blocksPerSm` bounds the registers so that so many blocks are resident; default: the compiler decides. */
export function launchBounds(threads: number, blocksPerSm?: number): string {
  return `__launch_bounds__(${threads}${blocksPerSm === undefined ? "" : `, ${blocksPerSm}`})`;
}

/** Drops definitions of locals that no other line reads. */
function dropDeadDefinitions(lines: readonly Line[]): readonly Line[] {
  const mentions = countNames(lines);
  const read = lines.filter(({ defines }) => defines === undefined || (mentions.get(defines) ?? 0) > 1);
  return read.length === lines.length ? lines : dropDeadDefinitions(read);
}

function countNames(lines: readonly Line[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { text } of lines) {
    for (const name of text.match(/\w+/g) ?? []) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}
