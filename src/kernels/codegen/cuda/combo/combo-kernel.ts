/** Kernels of several functions: a block runs one of them, and has its number among that one's blocks. */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import type { Storage } from "../../../../runtime/index.js";
import { awaitingFirst, boundsOf, type PrintedFunction } from "../kernel-text.js";
import { type PreludeName, preludeOf } from "../prelude.js";

/** A function of every thread of a block. */
export interface BlockFunction extends PrintedFunction {
  /** What it takes ahead of its own parameters: `block`, its number, and `memory`, the block's. */
  readonly before: readonly string[];
  /** How much of the block's memory it uses. All functions have the same, as only one of them runs in a block. */
  readonly sharedDoubles: number;
}

/** A function on operands. */
export interface Task {
  /** For people. */
  readonly name: string;
  /** What the function follows from: those of one text are printed once. */
  readonly text: string;
  readonly blocks: number;
  /** As its own parameters say. */
  readonly arguments: readonly (Storage | number)[];
  print(name: string): BlockFunction;
}

/** A kernel's arguments have a limit of 4 KiB; none is larger than eight bytes. */
export const maxArguments = 500;

/** A launch that runs tasks which don't wait for each other. */
export interface ComboLaunch {
  /** What the printed code follows from, but for its entry and threads. */
  readonly key: string;
  readonly blocks: number;
  /** Those of the tasks in the order in which the code takes them, then where each one's blocks end, but for the last's. */
  readonly arguments: readonly (Storage | number)[];
  print(): KernelSource;
}

interface ComboOptions {
  readonly entry: string;
  readonly threads: number;
  /** How many blocks a multiprocessor is to have room for; the compiler decides where it is not said. */
  readonly blocksAtOnce?: number;
}

/** Tasks of one text are expected one behind the other; the block finds its text first, then whose operands it works on. */
export function runCombo(tasks: readonly Task[], options: ComboOptions): ComboLaunch {
  const ends: number[] = [];
  let blocks = 0;
  for (const task of tasks) {
    blocks += task.blocks;
    ends.push(blocks);
  }
  return {
    key: tasks.map(({ text }) => text).join(" "),
    blocks,
    arguments: [...tasks.flatMap((task) => task.arguments), ...ends.slice(0, -1)],
    print: () => printCombo(tasks, options),
  };
}

function printCombo(tasks: readonly Task[], options: ComboOptions): KernelSource {
  const { entry, threads, blocksAtOnce } = options;
  const parameters: Parameter[] = [];
  const signature: string[] = [];
  const lines: string[] = [];
  const functions: BlockFunction[] = [];
  for (const [place, task] of tasks.entries()) {
    if (task.text === tasks[place - 1]?.text) continue;
    const to = place + tasks.slice(place).findIndex(({ text }) => text !== task.text);
    const end = to < place ? tasks.length : to;
    const name = `work${functions.length}`;
    const printed = task.print(name);
    for (let own = place; own < end; own++) {
      for (const { kind, type, name: parameter } of printed.parameters) {
        parameters.push(kind);
        signature.push(`${type} ${parameter}_of${own}`);
      }
    }
    const head = end < tasks.length ? `if (block < end${end - 1}) {` : "{";
    lines.push(`  ${place === 0 ? "" : "else "}${head}`, ...printAlgorithm(printed, name, place, end), "  }");
    functions.push(printed);
  }
  for (let end = 0; end < tasks.length - 1; end++) {
    parameters.push("u32");
    signature.push(`unsigned end${end}`);
  }
  const called = new Set<PreludeName>(functions.flatMap((one) => [...one.called]));
  const doubles = Math.max(...functions.map(({ sharedDoubles }) => sharedDoubles));
  const memory = doubles > 0 ? `  __shared__ __align__(16) double memory[${doubles}];\n` : "";
  const waiting = functions.every((one) => one.called.has("gridDependencyWait")) ? "" : awaitingFirst;
  const code = `${preludeOf(called.add("gridDependencyWait"))}${functions.map((one) => one.code).join("\n")}
extern "C" __global__ void ${boundsOf(threads, blocksAtOnce)} ${entry}(
    ${signature.join(",\n    ")}) {
${memory}${waiting}  const unsigned block = blockIdx.x;
${lines.join("\n")}
}
`;
  const names = [...new Set(tasks.map((task) => task.name))];
  return { name: names.join(" + "), parameters, cuda: { entry, threads, code, waits: true } };
}

/** Whose operands the block works on, of the tasks from one place up to another; then the work. */
function printAlgorithm(
  { before, parameters }: BlockFunction,
  name: string,
  from: number,
  to: number,
): readonly string[] {
  const lines = ["    unsigned start;", ...parameters.map((one) => `    ${one.type} ${one.name};`)];
  for (let place = from; place < to; place++) {
    const test = place < to - 1 ? `if (block < end${place}) ` : "";
    lines.push(`    ${place === from ? "" : "else "}${test}{`);
    lines.push(`      start = ${place === 0 ? "0u" : `end${place - 1}`};`);
    lines.push(...parameters.map((one) => `      ${one.name} = ${one.name}_of${place};`), "    }");
  }
  const given = before.map((one) => (one === "block" ? "block - start" : one));
  return [...lines, `    ${name}(${[...given, ...parameters.map((one) => one.name)].join(", ")});`];
}
