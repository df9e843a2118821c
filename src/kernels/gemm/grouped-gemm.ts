/** How a block finds its product, where one launch makes several. */

/** A local of the kernel's text: what the block's product has under that name. */
export interface GemmLocal {
  readonly type: string;
  readonly name: string;
  /** Is it the parameter's address, where that is too large to be copied? */
  readonly isAddress?: boolean;
}

/**
 * Lines that set the locals to what the block's product has, and `block` to its number among that product's. Each parameter is
 * called as its local is, with the product's number behind it; `first` tells of all but the first product where its blocks begin.
 */
export function selectGemm(locals: readonly GemmLocal[], products: number): string {
  const givenAs = ({ name, isAddress }: GemmLocal, index: number): string =>
    `${isAddress ? "&" : ""}${name}${index}`;
  const lines = locals.map((local) => `${local.type} ${local.name} = ${givenAs(local, 0)};`);
  lines.push("unsigned block = blockIdx.x;");
  for (let index = 1; index < products; index++) {
    const own = locals.map((local) => `${local.name} = ${givenAs(local, index)};`);
    lines.push(`if (blockIdx.x >= first${index}) {`);
    lines.push(`  ${own.join(" ")}`, `  block = blockIdx.x - first${index};`, "}");
  }
  return lines.map((line) => `  ${line}\n`).join("");
}

/** Locals of one type. */
export function localsOf(type: string, names: readonly string[]): readonly GemmLocal[] {
  return names.map((name) => ({ type, name }));
}
