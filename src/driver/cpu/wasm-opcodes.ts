/**
 * The WebAssembly instructions that our kernels may use, under the names of the text format, with their bytes. The
 * table is closed: an instruction that is not in it can't be written. Its numbers are those of the core
 * specification (binary format, instructions); 0xfd opens the SIMD page and 0xfc the bulk-memory page.
 */

export const valueTypes = { i32: 0x7f, i64: 0x7e, f32: 0x7d, f64: 0x7c, v128: 0x7b } as const;
export type ValueType = keyof typeof valueTypes;

/** SIMD opcodes are LEB128 numbers behind their prefix, so those from 0x80 on take two bytes. */
function simd(code: number): readonly number[] {
  return code < 0x80 ? [0xfd, code] : [0xfd, (code & 0x7f) | 0x80, code >> 7];
}

/** Instructions that take everything from the stack. */
export const plainOpcodes = {
  unreachable: [0x00],
  return: [0x0f],
  drop: [0x1a],
  select: [0x1b],

  "i32.eqz": [0x45],
  "i32.eq": [0x46],
  "i32.ne": [0x47],
  "i32.lt_s": [0x48],
  "i32.lt_u": [0x49],
  "i32.gt_s": [0x4a],
  "i32.gt_u": [0x4b],
  "i32.le_s": [0x4c],
  "i32.le_u": [0x4d],
  "i32.ge_s": [0x4e],
  "i32.ge_u": [0x4f],
  "i32.add": [0x6a],
  "i32.sub": [0x6b],
  "i32.mul": [0x6c],
  "i32.div_s": [0x6d],
  "i32.div_u": [0x6e],
  "i32.rem_s": [0x6f],
  "i32.rem_u": [0x70],
  "i32.and": [0x71],
  "i32.or": [0x72],
  "i32.xor": [0x73],
  "i32.shl": [0x74],
  "i32.shr_s": [0x75],
  "i32.shr_u": [0x76],
  "i32.rotl": [0x77],
  "i32.rotr": [0x78],

  "i64.add": [0x7c],
  "i64.mul": [0x7e],
  "i64.shr_u": [0x88],
  "i64.extend_i32_u": [0xad],
  "i32.wrap_i64": [0xa7],

  "f32.eq": [0x5b],
  "f32.ne": [0x5c],
  "f32.lt": [0x5d],
  "f32.gt": [0x5e],
  "f32.le": [0x5f],
  "f32.ge": [0x60],
  "f32.abs": [0x8b],
  "f32.neg": [0x8c],
  "f32.ceil": [0x8d],
  "f32.floor": [0x8e],
  "f32.trunc": [0x8f],
  "f32.nearest": [0x90],
  "f32.sqrt": [0x91],
  "f32.add": [0x92],
  "f32.sub": [0x93],
  "f32.mul": [0x94],
  "f32.div": [0x95],
  "f32.min": [0x96],
  "f32.max": [0x97],
  "f32.copysign": [0x98],

  "f64.eq": [0x61],
  "f64.ne": [0x62],
  "f64.lt": [0x63],
  "f64.gt": [0x64],
  "f64.le": [0x65],
  "f64.ge": [0x66],
  "f64.abs": [0x99],
  "f64.neg": [0x9a],
  "f64.ceil": [0x9b],
  "f64.floor": [0x9c],
  "f64.trunc": [0x9d],
  "f64.nearest": [0x9e],
  "f64.sqrt": [0x9f],
  "f64.add": [0xa0],
  "f64.sub": [0xa1],
  "f64.mul": [0xa2],
  "f64.div": [0xa3],
  "f64.min": [0xa4],
  "f64.max": [0xa5],
  "f64.copysign": [0xa6],

  "f32.convert_i32_s": [0xb2],
  "f32.convert_i32_u": [0xb3],
  "f32.demote_f64": [0xb6],
  "f64.convert_i32_s": [0xb7],
  "f64.convert_i32_u": [0xb8],
  "f64.promote_f32": [0xbb],
  "i32.reinterpret_f32": [0xbc],
  "f32.reinterpret_i32": [0xbe],
  "i32.trunc_sat_f32_s": [0xfc, 0x00],
  "i32.trunc_sat_f64_s": [0xfc, 0x02],

  "i16x8.extend_low_i8x16_u": simd(0x89),
  "i32x4.extend_low_i16x8_u": simd(0xa9),
  "i32x4.splat": simd(0x11),
  "i32x4.eq": simd(0x37),
  "i32x4.ne": simd(0x38),
  "i32x4.lt_s": simd(0x39),
  "i32x4.gt_s": simd(0x3b),
  "i32x4.le_s": simd(0x3d),
  "i32x4.ge_s": simd(0x3f),
  "i32x4.abs": simd(0xa0),
  "i32x4.neg": simd(0xa1),
  "i32x4.shl": simd(0xab),
  "i32x4.shr_s": simd(0xac),
  "i32x4.shr_u": simd(0xad),
  "i32x4.add": simd(0xae),
  "i32x4.sub": simd(0xb1),
  "i32x4.mul": simd(0xb5),
  "i32x4.min_s": simd(0xb6),
  "i32x4.max_s": simd(0xb8),
  "i32x4.trunc_sat_f32x4_s": simd(0xf8),
  "i32x4.trunc_sat_f64x2_s_zero": simd(0xfc),

  "f32x4.splat": simd(0x13),
  "f32x4.eq": simd(0x41),
  "f32x4.ne": simd(0x42),
  "f32x4.lt": simd(0x43),
  "f32x4.gt": simd(0x44),
  "f32x4.le": simd(0x45),
  "f32x4.ge": simd(0x46),
  "f32x4.abs": simd(0xe0),
  "f32x4.neg": simd(0xe1),
  "f32x4.sqrt": simd(0xe3),
  "f32x4.add": simd(0xe4),
  "f32x4.sub": simd(0xe5),
  "f32x4.mul": simd(0xe6),
  "f32x4.div": simd(0xe7),
  "f32x4.min": simd(0xe8),
  "f32x4.max": simd(0xe9),
  "f32x4.pmin": simd(0xea),
  "f32x4.pmax": simd(0xeb),
  "f32x4.ceil": simd(0x67),
  "f32x4.floor": simd(0x68),
  "f32x4.trunc": simd(0x69),
  "f32x4.nearest": simd(0x6a),
  "f32x4.convert_i32x4_s": simd(0xfa),
  "f32x4.convert_i32x4_u": simd(0xfb),
  "f32x4.demote_f64x2_zero": simd(0x5e),

  "f64x2.splat": simd(0x14),
  "f64x2.eq": simd(0x47),
  "f64x2.ne": simd(0x48),
  "f64x2.lt": simd(0x49),
  "f64x2.gt": simd(0x4a),
  "f64x2.le": simd(0x4b),
  "f64x2.ge": simd(0x4c),
  "f64x2.abs": simd(0xec),
  "f64x2.neg": simd(0xed),
  "f64x2.sqrt": simd(0xef),
  "f64x2.add": simd(0xf0),
  "f64x2.sub": simd(0xf1),
  "f64x2.mul": simd(0xf2),
  "f64x2.div": simd(0xf3),
  "f64x2.min": simd(0xf4),
  "f64x2.max": simd(0xf5),
  "f64x2.pmin": simd(0xf6),
  "f64x2.pmax": simd(0xf7),
  "f64x2.nearest": simd(0x94),
  "f64x2.ceil": simd(0x74),
  "f64x2.floor": simd(0x75),
  "f64x2.convert_low_i32x4_s": simd(0xfe),
  "f64x2.promote_low_f32x4": simd(0x5f),

  "v128.not": simd(0x4d),
  "v128.and": simd(0x4e),
  "v128.or": simd(0x50),
  "v128.xor": simd(0x51),
  "v128.bitselect": simd(0x52),
  "v128.andnot": simd(0x4f),
  "v128.any_true": simd(0x53),
  "i32x4.all_true": simd(0xa3),
  "i64x2.shl": simd(0xcb),
  "i64x2.shr_u": simd(0xcd),
  "i64x2.add": simd(0xce),
  "i64x2.extmul_low_i32x4_u": simd(0xde),
  "i64x2.extmul_high_i32x4_u": simd(0xdf),

  // Relaxed SIMD: one rounding or two, as the machine likes. Only where `hasRelaxedSimd` says that it is there.
  "f32x4.relaxed_madd": simd(0x105),
  "f64x2.relaxed_madd": simd(0x107),

  // The trailing zeros name the one memory there is.
  "memory.copy": [0xfc, 0x0a, 0x00, 0x00],
  "memory.fill": [0xfc, 0x0b, 0x00],
} as const satisfies Record<string, readonly number[]>;
export type PlainOpcode = keyof typeof plainOpcodes;

/**
 * Loads and stores. `alignment` is the exponent of the natural alignment; it is a hint, and an address that
 * breaks it works all the same.
 */
export const memoryOpcodes = {
  "i32.load": { code: [0x28], alignment: 2 },
  "f32.load": { code: [0x2a], alignment: 2 },
  "f64.load": { code: [0x2b], alignment: 3 },
  "i32.load8_u": { code: [0x2d], alignment: 0 },
  "i64.load": { code: [0x29], alignment: 3 },
  "i32.load16_u": { code: [0x2f], alignment: 1 },
  "i32.store": { code: [0x36], alignment: 2 },
  "f32.store": { code: [0x38], alignment: 2 },
  "f64.store": { code: [0x39], alignment: 3 },
  "i32.store8": { code: [0x3a], alignment: 0 },
  "i32.store16": { code: [0x3b], alignment: 1 },
  "i64.store": { code: [0x37], alignment: 3 },
  "v128.load": { code: simd(0x00), alignment: 4 },
  "v128.load32_splat": { code: simd(0x09), alignment: 2 },
  "v128.load64_splat": { code: simd(0x0a), alignment: 3 },
  "v128.load32_zero": { code: simd(0x5c), alignment: 2 },
  "v128.load64_zero": { code: simd(0x5d), alignment: 3 },
  /** Four 16-bit values, each into a 32-bit lane. */
  "v128.load16x4_u": { code: simd(0x04), alignment: 3 },
  "v128.store": { code: simd(0x0b), alignment: 4 },
} as const satisfies Record<string, { readonly code: readonly number[]; readonly alignment: number }>;
export type MemoryOpcode = keyof typeof memoryOpcodes;

/** Instructions that carry the number of a vector's lane. */
export const laneOpcodes = {
  "f32x4.extract_lane": simd(0x1f),
  "f32x4.replace_lane": simd(0x20),
  "i32x4.extract_lane": simd(0x1b),
  "i32x4.replace_lane": simd(0x1c),
  "f64x2.extract_lane": simd(0x21),
  "f64x2.replace_lane": simd(0x22),
} as const satisfies Record<string, readonly number[]>;
export type LaneOpcode = keyof typeof laneOpcodes;

/** Instructions that shape control, name a local or carry a constant; `Code` has a method for each. */
export const structureOpcodes = {
  block: 0x02,
  loop: 0x03,
  if: 0x04,
  else: 0x05,
  end: 0x0b,
  br: 0x0c,
  brIf: 0x0d,
  call: 0x10,
  localGet: 0x20,
  localSet: 0x21,
  localTee: 0x22,
  i32Const: 0x41,
  f32Const: 0x43,
  f64Const: 0x44,
} as const;

/** Picks bytes out of two vectors; sixteen byte numbers follow it. */
export const shuffleOpcode = simd(0x0d);

/** The type of a block that leaves nothing on the stack. */
export const emptyBlock = 0x40;
