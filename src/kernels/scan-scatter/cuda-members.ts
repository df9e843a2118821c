/** Kernels for a group of scatters: each member has parameters of its own, and consecutive blocks of the grid. */

import type { Parameter } from "../../driver/index.js";
import type { Storage } from "../../runtime/index.js";
import {
  indented,
  type MemberLocal,
  numberedLocal,
  selectMember,
} from "../codegen/cuda/combo/select-member.js";
import { paddedGroupSize } from "../multi-tensor/group-size.js";

/** Members of a launch: each takes up to 56 bytes of its 4 KiB of arguments. */
export const maxMembers = 64;

/** A member's arguments by name, and the number of its blocks. */
export interface Member {
  readonly blocks: number;
  readonly values: Readonly<Record<string, Storage | number>>;
}

/** The parameters of a member by name. */
type Parameters = Readonly<Record<string, Parameter>>;

/** The parameters of all members, numbered: by name, then the ends of the members' blocks, except for the last. */
export function groupParameters(size: number, parameters: Parameters): Parameters {
  const list = Object.entries(parameters).flatMap(([name, parameter]) =>
    numbered(size, name).map((key) => [key, parameter] as const),
  );
  return Object.fromEntries([...list, ...numbered(size - 1, "end").map((key) => [key, "u32"] as const)]);
}

/** The element types of the members' pointers. */
export function groupPointers(
  size: number,
  types: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(types).flatMap(([name, type]) => numbered(size, name).map((key) => [key, type] as const)),
  );
}

/** The size of the kernel for so many members; members without blocks follow them. */
export const groupSize = paddedGroupSize;

/** The arguments in the order of `groupParameters`. The last member is repeated, without blocks, up to the size of the kernel. */
export function groupArguments(
  parameters: Parameters,
  members: readonly Member[],
): readonly (Storage | number)[] {
  const last = members.at(-1);
  const padding = groupSize(members.length) - members.length;
  const padded = last ? [...members, ...new Array<Member>(padding).fill({ ...last, blocks: 0 })] : [];
  let end = 0;
  const ends = padded.map(({ blocks }) => {
    end += blocks;
    return end;
  });
  const values = Object.keys(parameters).flatMap((name) => padded.map((member) => argumentOf(member, name)));
  return [...values, ...ends.slice(0, -1)];
}

function argumentOf({ values }: Member, name: string): Storage | number {
  const value = values[name];
  if (value === undefined) throw new Error(`A member of a group has no argument ${name}.`);
  return value;
}

export function blocksOf(members: readonly Member[]): number {
  return members.reduce((sum, { blocks }) => sum + blocks, 0);
}

/** The local that has the number of a block's member. */
export const memberNumber: MemberLocal = {
  type: "unsigned",
  name: "member",
  valueOf: (member) => `${member}u`,
};

/** C++: the parameters of the block's member, other locals, and `block`, the block's index within its member. */
export function memberOfBlock(
  size: number,
  types: Readonly<Record<string, string>>,
  others: readonly MemberLocal[] = [],
): string {
  const locals = [...Object.entries(types).map(([name, type]) => numberedLocal(type, name)), ...others];
  return indented(selectMember({ end: size, locals, index: "block" })).trimEnd();
}

const numbered = (size: number, name: string): readonly string[] =>
  Array.from({ length: size }, (_, index) => `${name}${index}`);
