/** The data types of tensors: storage and compute type of each. */

/** "storage": numbers that are stored and converted, and that ops do not compute with. */
export type DtypeKind = "float" | "integer" | "boolean" | "storage";

interface DtypeRow {
  readonly kind: DtypeKind;
  readonly bytes: number;
  /** The type of arithmetic: 16-bit floats and small integers are widened on load and narrowed on store. */
  readonly compute: "f32" | "f64" | "i32" | "i64";
  /** The host array of elements; 16-bit floats are stored as bits. */
  readonly array: new (
    buffer: ArrayBuffer,
    byteOffset: number,
    length: number,
  ) => ArrayBufferView;
}

/** All dtypes with their properties. */
export const dtypes = {
  f32: { kind: "float", bytes: 4, compute: "f32", array: Float32Array },
  f64: { kind: "float", bytes: 8, compute: "f64", array: Float64Array },
  bf16: { kind: "float", bytes: 2, compute: "f32", array: Uint16Array },
  f16: { kind: "float", bytes: 2, compute: "f32", array: Uint16Array },
  f8e4m3: { kind: "storage", bytes: 1, compute: "f32", array: Uint8Array },
  f8e5m2: { kind: "storage", bytes: 1, compute: "f32", array: Uint8Array },
  i64: { kind: "integer", bytes: 8, compute: "i64", array: BigInt64Array },
  i32: { kind: "integer", bytes: 4, compute: "i32", array: Int32Array },
  i8: { kind: "integer", bytes: 1, compute: "i32", array: Int8Array },
  u8: { kind: "integer", bytes: 1, compute: "i32", array: Uint8Array },
  bool: { kind: "boolean", bytes: 1, compute: "i32", array: Uint8Array },
} as const satisfies Record<string, DtypeRow>;

/** The name of a dtype. */
export type Dtype = keyof typeof dtypes;

/** The host array of a dtype: `ElementArray<"f32">` is Float32Array, `ElementArray<"bf16">` is Uint16Array. */
export type ElementArray<D extends Dtype = Dtype> = InstanceType<(typeof dtypes)[D]["array"]>;

export const dtypeNames = Object.keys(dtypes) as readonly Dtype[];

/**
 * The dtype of a row kernel's input: that of memory, or "draw". A draw is an array of random 16-bit numbers that no memory has: the operand
 * is a random state, and the kernel computes each number from the state and its index, wherever the iteration visits it.
 */
export type InputDtype = Dtype | "draw";

/** The bytes of an element in memory, and its compute type, by the dtype of an input. */
export const inputDtypes: Readonly<Record<InputDtype, Pick<DtypeRow, "bytes" | "compute">>> = {
  ...dtypes,
  draw: { bytes: 0, compute: "i32" },
};
