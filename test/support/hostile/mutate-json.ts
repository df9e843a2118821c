/** Changes of one place in a JSON value, as a hostile file may have them. */

/** A change of the place with a number, counted over all places of a value. */
export interface JsonChange {
  readonly place: number;
  readonly kind: "replace" | "remove" | "rename" | "wrap";
  /** The number of a hostile value. */
  readonly value: number;
}

export const changeKinds = ["replace", "replace", "replace", "remove", "rename", "wrap"] as const;

/** Becomes the number 1e999, which JSON.stringify can't write. */
const infinity = "@infinity@";

export const hostileValues: readonly unknown[] = [
  ...[
    null,
    true,
    false,
    "",
    "x",
    0,
    -1,
    1,
    2,
    0.5,
    -0.5,
    7,
    64,
    65_536,
    2 ** 24,
    2 ** 31,
    2 ** 53,
    1e15,
    1e308,
  ],
  ...[
    1e-308,
    infinity,
    "NaN",
    "__proto__",
    "../../../etc/passwd",
    "/dev/zero",
    "\u0000",
    "\ud800",
    "(a|aa)+$",
  ],
  ...[
    "{{ 1 }}",
    "a".repeat(70_000),
    [],
    {},
    [[]],
    [0],
    ["x"],
    { type: "x" },
    { __proto__: null, constructor: 1 },
  ],
  ...[new Array(3000).fill(0), Object.fromEntries(Array.from({ length: 3000 }, (_, at) => [`k${at}`, at]))],
  ...[JSON.parse(`${"[".repeat(40)}${"]".repeat(40)}`), JSON.parse(`${"[".repeat(2000)}${"]".repeat(2000)}`)],
];

interface Place {
  readonly parent: Record<string, unknown> | unknown[];
  readonly key: string;
}

/** The JSON text of a value with a change. */
export function changedJson(value: unknown, { place, kind, value: index }: JsonChange): string {
  const copy: unknown = structuredClone(value);
  const root = { root: copy };
  const places = placesIn(root);
  const { parent, key } = places[place % places.length] as Place;
  const record = parent as Record<string, unknown>;
  const hostile = hostileValues[index % hostileValues.length];
  if (kind === "replace") record[key] = hostile;
  else if (kind === "wrap") record[key] = [record[key]];
  else if (kind === "remove" || Array.isArray(parent)) {
    if (Array.isArray(parent)) parent.splice(Number(key), 1);
    else delete record[key];
  } else {
    const renamed = Object.entries(record).map(([name, one]) => [
      name === key ? `${name}${index}` : name,
      one,
    ]);
    for (const name of Object.keys(record)) delete record[name];
    Object.assign(record, Object.fromEntries(renamed));
  }
  return (JSON.stringify(root.root) ?? "").replaceAll(`"${infinity}"`, "1e999");
}

function placesIn(root: Record<string, unknown>): readonly Place[] {
  const places: Place[] = [];
  const visit = (parent: Record<string, unknown> | unknown[]): void => {
    for (const key of Object.keys(parent)) {
      places.push({ parent, key });
      const child = (parent as Record<string, unknown>)[key];
      if (typeof child === "object" && child !== null) visit(child as Record<string, unknown>);
    }
  };
  visit(root);
  return places;
}

/** A file of the format safetensors: its header as JSON, and its data. */
export function splitSafetensors(file: Uint8Array): { readonly header: unknown; readonly data: Uint8Array } {
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const text = new TextDecoder().decode(file.subarray(8, 8 + length));
  return { header: JSON.parse(text), data: file.subarray(8 + length) };
}

/** `length`: the length that the file states. Default: the header's. */
export function joinSafetensors(header: string, data: Uint8Array, length?: bigint): Uint8Array {
  const text = new TextEncoder().encode(header);
  const start = new Uint8Array(8);
  new DataView(start.buffer).setBigUint64(0, length ?? BigInt(text.length), true);
  return Buffer.concat([start, text, data]);
}
