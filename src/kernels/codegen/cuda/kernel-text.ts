/** The text of one CUDA kernel, or of a function of one, while it is being printed: its parameters, its lines, what it calls. */

import type { CudaCode, KernelSource, Parameter } from "../../../driver/index.js";
import { type PreludeName, preludeOf } from "./prelude.js";

/** A parameter that has a place in a launch. */
export interface NamedParameter {
  readonly kind: Parameter;
  readonly type: string;
  readonly name: string;
}

/** A function that a kernel of several texts calls. */
export interface PrintedFunction {
  readonly code: string;
  readonly parameters: readonly NamedParameter[];
  /** What it calls of the prelude, which the kernel has to print. */
  readonly called: ReadonlySet<PreludeName>;
}

interface Line {
  readonly text: string;
  /** The local that the line does nothing but define; without a reader it is left out. */
  readonly defines?: string;
}

const scalarTypes = { u32: "unsigned", i32: "int", f32: "float", f64: "double" } as const;

export class KernelText {
  readonly #parameters: NamedParameter[] = [];
  readonly #lines: Line[] = [];
  readonly #called = new Set<PreludeName>();
  #depth: number;
  #locals = 0;

  /** May functions be quick, at the cost of some bits: for values that have fewer of them anyway? */
  readonly isQuick: boolean;

  /** `depth`: how far its lines are moved in. */
  constructor({ depth = 1, isQuick = false }: { readonly depth?: number; readonly isQuick?: boolean } = {}) {
    this.#depth = depth;
    this.isQuick = isQuick;
  }

  /** Declares the next parameter that points to elements of a type. */
  pointer(kind: "in" | "out" | "inout" | "partial-out", type: string, name: string): string {
    this.#parameters.push({ kind, type: kind === "in" ? `const ${type}*` : `${type}*`, name });
    return name;
  }

  /** Declares the next parameter that goes by value. */
  scalar(kind: keyof typeof scalarTypes, name: string): string {
    this.#parameters.push({ kind, type: scalarTypes[kind], name });
    return name;
  }

  line(text: string): void {
    this.#lines.push({ text: `${"  ".repeat(this.#depth)}${text}` });
  }

  /** A local that is set once; where nothing reads it, it is not printed. */
  define(type: string, name: string, value: string): void {
    this.#lines.push({ text: `${"  ".repeat(this.#depth)}${type} ${name} = ${value};`, defines: name });
  }

  /** Lines between braces behind a head: a loop's, a condition's. */
  block(head: string, body: () => void): void {
    this.line(`${head} {`);
    this.#depth++;
    body();
    this.#depth--;
    this.line("}");
  }

  /** A loop whose turns are known when the code is compiled, and written out by the compiler. */
  unrolled(counter: string, turns: number, body: () => void): void {
    this.line("#pragma unroll");
    this.block(`for (unsigned ${counter} = 0u; ${counter} < ${turns}u; ${counter}++)`, body);
  }

  /** A name that nothing else in the kernel has. */
  freshName(): string {
    return `v${this.#locals++}`;
  }

  /** Keeps a value under a fresh name. */
  keep(type: string, value: string): string {
    const name = this.freshName();
    this.define(`const ${type}`, name, value);
    return name;
  }

  /** The name of a function of the prelude, which is printed along. */
  use(name: PreludeName): string {
    this.#called.add(name);
    return name;
  }

  call(name: PreludeName, ...values: readonly string[]): string {
    return `${this.use(name)}(${values.join(", ")})`;
  }

  /** Its lines as a part of a kernel that somebody else writes, and the functions that they call. */
  fragment(): { readonly called: ReadonlySet<PreludeName>; readonly lines: string } {
    const { body, called } = this.#print();
    return { called, lines: body };
  }

  /** `blocksAtOnce`: as `boundsOf` takes it; `sharedBytes`: what comes with the launch. */
  finish(name: string, threads: number, blocksAtOnce?: number, sharedBytes?: number): KernelSource {
    const { signature, body, called } = this.#print();
    const entry = `hf_${name.replace(/\W+/g, "_")}`;
    const cuda: CudaCode = {
      ...{ entry, threads, waits: true },
      ...(sharedBytes !== undefined && { sharedBytes }),
      code: `${preludeOf(new Set([...called, "gridDependencyWait"]))}extern "C" __global__ void ${boundsOf(threads, blocksAtOnce)} ${entry}(
    ${signature.join(",\n    ")}) {
${called.has("gridDependencyWait") ? "" : awaitingFirst}${body}
}
`,
    };
    return { name, parameters: this.#parameters.map(({ kind }) => kind), cuda };
  }

  /** `before`: what it takes besides, ahead of its own parameters. */
  epilogueFunction(name: string, before: readonly string[]): PrintedFunction {
    const { signature, body, called, isRead } = this.#print();
    const given = before.map((one) => {
      const cut = one.lastIndexOf(" ");
      return isRead(one.slice(cut + 1)) ? one : one.slice(0, cut);
    });
    const code = `static __device__ __forceinline__ void ${name}(
    ${[...given, ...signature].join(",\n    ")}) {
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
    const lines = withoutUnread(this.#lines);
    const mentioned = countNames(lines);
    return {
      // A parameter that nothing reads has no name, or compilers would point at it.
      signature: this.#parameters.map(({ type, name }) => (mentioned.has(name) ? `${type} ${name}` : type)),
      isRead: (name) => mentioned.has(name),
      body: lines.map(({ text }) => text).join("\n"),
      // What only unread lines have called goes with them.
      called: new Set([...this.#called].filter((one) => mentioned.has(one))),
    };
  }
}

/** C++: what a kernel that waits has to declare. */
export const awaiting = preludeOf(new Set(["gridDependencyWait"]));

/** C++: the first line of a kernel that fetches nothing before it has waited for the launch before it. */
export const awaitingFirst = "  gridDependencyWait();\n";

/** C++: `blocksAtOnce` is how many blocks a multiprocessor is to have registers for; the compiler decides where it is not said. */
export function boundsOf(threads: number, blocksAtOnce?: number): string {
  return `__launch_bounds__(${threads}${blocksAtOnce === undefined ? "" : `, ${blocksAtOnce}`})`;
}

/** Lines less those that define what no other line reads. */
function withoutUnread(lines: readonly Line[]): readonly Line[] {
  const mentions = countNames(lines);
  const read = lines.filter(({ defines }) => defines === undefined || (mentions.get(defines) ?? 0) > 1);
  return read.length === lines.length ? lines : withoutUnread(read);
}

function countNames(lines: readonly Line[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { text } of lines) {
    for (const name of text.match(/\w+/g) ?? []) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return counts;
}
