/**
 * The prologue of every grouped launch. The members of a group (kernels, GEMMs, copies) share one grid; each has a range of consecutive
 * blocks. A block compares its index with the ends of these ranges, which are launch parameters, to find its member.
 */

/** A local of the generated code that has another value for each member. */
export interface MemberLocal {
  readonly type: string;
  readonly name: string;
  /** The expression of its value for a member, mostly a parameter. */
  valueOf(member: number): string;
}

/** A local whose parameters are named like it, with the member's number after the name. */
export function numberedLocal(type: string, name: string): MemberLocal {
  return { type, name, valueOf: (member) => `${name}${member}` };
}

export interface MemberSelection {
  /** The members from `first` up to `end`; every block of the generated code belongs to one of them. */
  readonly first?: number;
  readonly end: number;
  readonly locals: readonly MemberLocal[];
  /** The local that becomes the block's index within its member. */
  readonly index: string;
  /**
   * Sets the locals to the first member's values and overrides them, member by member: selects instead of branches. This reads the
   * parameters of all members, but leaves more registers for the code that follows. Default: branches.
   */
  readonly bySelects?: boolean;
  /** The parameter that is the end of a member's blocks. Default: `end` with the member's number. */
  endOf?(member: number): string;
}

const endParameter = (member: number): string => `end${member}`;

/** C++ lines that declare the locals and set them to the values of this block's member. */
export function selectMember(selection: MemberSelection): readonly string[] {
  const { first = 0, end, locals, index, bySelects = false, endOf = endParameter } = selection;
  const all: readonly MemberLocal[] = [
    ...locals,
    {
      type: "unsigned",
      name: index,
      valueOf: (member) => (member === 0 ? "blockIdx.x" : `blockIdx.x - ${endOf(member - 1)}`),
    },
  ];
  const members = Array.from({ length: end - first }, (_, offset) => first + offset);
  const assignments = (member: number): string[] =>
    all.map((local) => `${local.name} = ${local.valueOf(member)};`);
  if (members.length === 1 || bySelects) {
    const overrides = members
      .slice(1)
      .map((member) => `if (blockIdx.x >= ${endOf(member - 1)}) { ${assignments(member).join(" ")} }`);
    return [...all.map((local) => `${local.type} ${local.name} = ${local.valueOf(first)};`), ...overrides];
  }
  const branches = members.map((member) => ({ last: member, lines: assignments(member) }));
  return [...all.map(({ type, name }) => `${type} ${name};`), ...branchByMember(branches, endOf)];
}

/** Lines for the blocks of the members up to and including `last`. */
export interface MemberBranch {
  readonly last: number;
  readonly lines: readonly string[];
}

/** C++: an if-else chain over ranges of members, in their order. The last branch has no condition. */
export function branchByMember(
  branches: readonly MemberBranch[],
  endOf: (member: number) => string = endParameter,
): readonly string[] {
  return branches.flatMap(({ last, lines }, branch) => {
    const isLast = branch === branches.length - 1;
    const condition = isLast ? "" : `if (blockIdx.x < ${endOf(last)}) `;
    return [
      `${branch === 0 ? "" : "} else "}${condition}{`,
      ...lines.map((line) => `  ${line}`),
      ...(isLast ? ["}"] : []),
    ];
  });
}

/** Indents lines and ends each with a newline. */
export function indented(lines: readonly string[], depth = 1): string {
  return lines.map((line) => `${"  ".repeat(depth)}${line}\n`).join("");
}
