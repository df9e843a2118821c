/**
 * A strict reader of the YAML subset of the deployment files: mappings, sequences, texts, numbers, booleans
 * and one-line lists, indented by two. Valid YAML that people misread (tabs, anchors, texts over several
 * lines, bare yes and no, duplicate keys) is rejected.
 */

export type Yaml = string | number | boolean | readonly Yaml[] | { readonly [key: string]: Yaml };

interface Line {
  readonly number: number;
  readonly indent: number;
  readonly text: string;
}

/** The documents of a file. */
export function readYaml(text: string): readonly Yaml[] {
  const documents: Line[][] = [[]];
  for (const [index, raw] of text.split("\n").entries()) {
    if (raw === "---") documents.push([]);
    else if (raw.trim() !== "" && !raw.trim().startsWith("#"))
      documents.at(-1)?.push(readLine(raw, index + 1));
  }
  return documents.map((lines) => {
    const reader = new BlockReader(lines);
    const value = reader.read(0);
    reader.requireEnd();
    return value;
  });
}

function readLine(raw: string, number: number): Line {
  if (raw.includes("\t") || raw !== raw.trimEnd()) throw fault(number, "has a tab, or ends with a space");
  const text = raw.trimStart();
  if (/ #/.test(text)) throw fault(number, "has a comment after something else");
  return { number, indent: raw.length - text.length, text };
}

class BlockReader {
  readonly #lines: Line[];
  #at = 0;

  constructor(lines: Line[]) {
    this.#lines = lines;
  }

  /** The value at this indentation: a mapping, a sequence, or one scalar. */
  read(indent: number): Yaml {
    const first = this.#next();
    if (first?.indent !== indent) throw fault(first?.number ?? 0, `is not indented by ${indent}`);
    if (first.text.startsWith("- ")) return this.#sequence(indent);
    if (keyOf(first)) return this.#mapping(indent);
    this.#at++;
    return scalar(first, first.text);
  }

  requireEnd(): void {
    const rest = this.#next();
    if (rest) throw fault(rest.number, "is indented as nothing before it");
  }

  #next(): Line | undefined {
    return this.#lines[this.#at];
  }

  #sequence(indent: number): Yaml[] {
    const items: Yaml[] = [];
    for (let line = this.#next(); line?.indent === indent; line = this.#next()) {
      if (!line.text.startsWith("- ")) break;
      // The text after the dash is its own block, indented by two more.
      this.#lines[this.#at] = { ...line, indent: indent + 2, text: line.text.slice(2) };
      items.push(this.read(indent + 2));
    }
    return items;
  }

  #mapping(indent: number): Readonly<Record<string, Yaml>> {
    const entries: Record<string, Yaml> = {};
    for (let line = this.#next(); line?.indent === indent; line = this.#next()) {
      const [key, value] = keyOf(line) ?? [];
      if (key === undefined) throw fault(line.number, "is no key with a value");
      if (Object.hasOwn(entries, key)) throw fault(line.number, `has the key ${key} a second time`);
      this.#at++;
      entries[key] = value === undefined || value === "" ? this.read(indent + 2) : scalar(line, value);
    }
    return entries;
  }
}

function keyOf({ text }: Line): [key: string, value: string] | undefined {
  const [, key, value = ""] = /^([A-Za-z][\w./-]*):(?: (.+))?$/.exec(text) ?? [];
  return key === undefined ? undefined : [key, value];
}

function scalar(line: Line, text: string): Yaml {
  const [, list] = /^\[(.*)\]$/.exec(text) ?? [];
  if (list !== undefined) return list.split(", ").map((item) => scalar(line, item));
  const [, quoted] = /^"([^"\\]*)"$/.exec(text) ?? [];
  if (quoted !== undefined) return quoted;
  if (/^(true|false)$/.test(text)) return text === "true";
  if (/^(0|[1-9]\d*)$/.test(text)) return Number(text);
  const isPlain = /^[\w/.-][\w/.:=-]*$/.test(text) && !/^(yes|no|on|off|null|~|\d+\.\d+)$/i.test(text);
  if (isPlain && !text.endsWith(":")) return text;
  throw fault(line.number, `has ${JSON.stringify(text)}, which is not plain`);
}

function fault(number: number, what: string): Error {
  return new Error(`Line ${number} ${what}.`);
}
