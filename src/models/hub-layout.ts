/** The names and layouts of parameters in Hugging Face's files, by the paths of parameters here. */

/** How an architecture's parameters are stored. */
export interface HubLayout {
  /** Precedes all names but those of heads. Files of a model without its head may lack it. */
  readonly prefix: string;
  /** Fields of the model that are outside of the prefix. */
  readonly heads: readonly string[];
  /** Parts of paths with another name in files. Others are in snake_case there. */
  readonly names: Readonly<Record<string, string>>;
  /** Modules whose weight is [in, out] in files, and [out, in] here. */
  readonly transposed: readonly string[];
  /** Tensors that files may have and models don't need, such as masks. */
  readonly ignored: RegExp;
}

/** The name in files of the parameter with a path. */
export function hubName({ prefix, heads, names }: HubLayout, path: string): string {
  const parts = path.split(".");
  const hub = parts.map(
    (part) => names[part] ?? part.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
  );
  return heads.includes(parts[0] ?? "") ? hub.join(".") : [prefix, ...hub].join(".");
}

/** True if the parameter is stored transposed. */
export function isTransposed({ transposed }: HubLayout, path: string): boolean {
  const [module = "", name] = path.split(".").slice(-2);
  return name === "weight" && transposed.includes(module);
}
