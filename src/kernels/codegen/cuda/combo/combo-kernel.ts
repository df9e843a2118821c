/** Combo kernels (horizontal fusion): one launch whose blocks run several independent device functions. */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import type { Storage } from "../../../../runtime/index.js";
import { maxParameterBytes } from "../../../cost-model.js";
import { pdlWait } from "../intrinsics/pdl.js";
import { launchBounds, type PrintedFunction } from "../kernel-text.js";
import { type PreludeName, preludeOf } from "../prelude.js";
import { branchByMember, indented, selectMember } from "./select-member.js";

/** A device function that all threads of a block run. */
export interface BlockFunction extends PrintedFunction {
  /** Leading arguments: `block`, the block's index within the member, and `memory`, static shared memory. */
  readonly leadingArguments: readonly string[];
  /** How much of the shared memory it uses. All members share one allocation, since a block runs only one of them. */
  readonly sharedDoubles: number;
}

/** A device function and its operands: a member of a combo kernel. */
export interface ComboMember {
  /** For profiles and error messages. */
  readonly name: string;
  /** Identifies the code: members with the same key share one printed function. */
  readonly codeKey: string;
  readonly blocks: number;
  /** In the order of the function's parameters, without the leading ones. */
  readonly arguments: readonly (Storage | number)[];
  print(name: string): BlockFunction;
}

/** The maximum number of the members' arguments, with eight bytes each; a few are reserved. */
export const maxArguments = maxParameterBytes / 8 - 12;

/** A launch that runs independent members. */
export interface ComboLaunch {
  /** Identifies the printed code, except for its entry and thread count. */
  readonly key: string;
  readonly blocks: number;
  /** The members' arguments in order, then the end of each member's blocks except the last. */
  readonly arguments: readonly (Storage | number)[];
  print(): KernelSource;
}

interface ComboOptions {
  readonly entry: string;
  readonly threads: number;
  /**
   * The minimum number of resident blocks per SM (second argument of __launch_bounds__). Default: the compiler decides.
   */
  readonly blocksPerSm?: number;
}

/** Members with the same code key must be neighbours: a block first finds its function, then its operands. */
export function combineMembers(members: readonly ComboMember[], options: ComboOptions): ComboLaunch {
  const ends: number[] = [];
  let blocks = 0;
  for (const member of members) {
    blocks += member.blocks;
    ends.push(blocks);
  }
  return {
    key: members.map(({ codeKey }) => codeKey).join(" "),
    blocks,
    arguments: [...members.flatMap((member) => member.arguments), ...ends.slice(0, -1)],
    print: () => printCombo(members, options),
  };
}

function printCombo(members: readonly ComboMember[], options: ComboOptions): KernelSource {
  const { entry, threads, blocksPerSm } = options;
  const parameters: Parameter[] = [];
  const signature: string[] = [];
  const functions: BlockFunction[] = [];
  const branches = runsOf(members).map(({ first, end, print }) => {
    const name = `member${functions.length}`;
    const printed = print(name);
    functions.push(printed);
    for (let member = first; member < end; member++) {
      for (const { kind, type, name: parameter } of printed.parameters) {
        parameters.push(kind);
        signature.push(`${type} ${parameter}_of${member}`);
      }
    }
    return { last: end - 1, lines: callFunction(printed, name, first, end) };
  });
  for (let end = 0; end < members.length - 1; end++) {
    parameters.push("u32");
    signature.push(`unsigned end${end}`);
  }
  const called = new Set<PreludeName>(functions.flatMap((printed) => [...printed.called]));
  const doubles = Math.max(...functions.map(({ sharedDoubles }) => sharedDoubles));
  const memory = doubles > 0 ? `  __shared__ __align__(16) double memory[${doubles}];\n` : "";
  const wait = functions.every((printed) => printed.called.has("gridDependencyWait")) ? "" : pdlWait;
  const code = `${preludeOf(called.add("gridDependencyWait"))}${functions.map((printed) => printed.code).join("\n")}
extern "C" __global__ void ${launchBounds(threads, blocksPerSm)} ${entry}(
    ${signature.join(",\n    ")}) {
${memory}${wait}${indented(branchByMember(branches))}}
`;
  const names = [...new Set(members.map((member) => member.name))];
  return { name: names.join(" + "), parameters, cuda: { entry, threads, code, hasGridDependencyWait: true } };
}

/** Runs of neighbouring members with the same code. */
function runsOf(
  members: readonly ComboMember[],
): readonly { readonly first: number; readonly end: number; readonly print: ComboMember["print"] }[] {
  const firsts = members.flatMap((member, index) =>
    member.codeKey === members[index - 1]?.codeKey
      ? []
      : [{ first: index, print: (name: string) => member.print(name) }],
  );
  return firsts.map((run, index) => ({ ...run, end: firsts[index + 1]?.first ?? members.length }));
}

/** Selects the operands among the members from `first` to `end`, then calls the function. */
function callFunction(
  { leadingArguments, parameters }: BlockFunction,
  name: string,
  first: number,
  end: number,
): readonly string[] {
  const locals = parameters.map(({ type, name: parameter }) => ({
    type,
    name: parameter,
    valueOf: (member: number) => `${parameter}_of${member}`,
  }));
  const values = [...leadingArguments, ...parameters.map((parameter) => parameter.name)];
  return [...selectMember({ first, end, locals, index: "block" }), `${name}(${values.join(", ")});`];
}
