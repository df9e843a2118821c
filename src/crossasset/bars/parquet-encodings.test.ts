/** Decoding page by page gives the values of hyparquet's own reader, over encodings, codecs, nullable columns and small pages. */

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { parquetReadObjects } from "hyparquet";
import { compressors } from "hyparquet-compressors";
import { type ColumnSource, parquetWriteBuffer } from "hyparquet-writer";
import { inFolder } from "../../../test/support/bar-files.js";
import { barColumns } from "./bars.js";
import { generateBars } from "./generate.js";
import { readParquet } from "./read-parquet.js";

const bars = generateBars({ bars: 700, seed: 5 });

type Form = Partial<ColumnSource> & {
  readonly codec?: "GZIP" | "BROTLI" | "ZSTD" | "SNAPPY" | "UNCOMPRESSED";
};

/** How each column is stored. */
const forms: Readonly<Record<string, { readonly time?: Form; readonly numbers?: Form }>> = {
  "plain doubles": { numbers: { encoding: "PLAIN" } },
  "nullable doubles": { numbers: { nullable: true, encoding: "PLAIN" }, time: { nullable: true } },
  dictionaries: { numbers: { encoding: "RLE_DICTIONARY" } },
  "nullable dictionaries": { numbers: { nullable: true, encoding: "RLE_DICTIONARY" } },
  "split bytes": { numbers: { encoding: "BYTE_STREAM_SPLIT" } },
  "packed deltas": { time: { encoding: "DELTA_BINARY_PACKED" } },
  gzip: { numbers: { codec: "GZIP" }, time: { codec: "GZIP" } },
  brotli: { numbers: { codec: "BROTLI" } },
  zstd: { numbers: { codec: "ZSTD" } },
  "no compression": { numbers: { codec: "UNCOMPRESSED" } },
};

test("every encoding and codec gives the values that hyparquet's own reader gives", async () => {
  await inFolder(async (folder) => {
    for (const [name, { time = {}, numbers = {} }] of Object.entries(forms)) {
      const columnData = barColumns.map((column): ColumnSource => {
        if (column !== "time")
          return { name: column, data: [...bars[column]], type: "DOUBLE", nullable: false, ...numbers };
        return { name: column, data: [...bars.time].map(BigInt), type: "INT64", nullable: false, ...time };
      });
      const path = join(folder, "form.parquet");
      const content = parquetWriteBuffer({
        ...{ columnData, rowGroupSize: 300, pageSize: 512 },
        compressors: {
          GZIP: (input: Uint8Array) => new Uint8Array(gzipSync(input)),
          BROTLI: (input: Uint8Array) => new Uint8Array(brotliCompressSync(input)),
          ZSTD: rawZstd,
        },
      });
      await writeFile(path, new Uint8Array(content));
      const actual = await readParquet(path, { inThread: false });
      const file = (await readFile(path)).buffer as ArrayBuffer;
      const expected = await parquetReadObjects({ file, compressors });
      for (const column of barColumns) {
        assert.deepEqual(
          [...actual[column]],
          expected.map((row) => Number(row[column])),
          `${column}, ${name}`,
        );
        assert.deepEqual(actual[column], bars[column], `${column}, ${name}`);
      }
    }
  });
});

/** A frame of one raw block, which every decompressor of the format accepts. */
function rawZstd(input: Uint8Array): Uint8Array {
  const { length } = input;
  const head = (length << 3) | 1;
  const size = [length & 0xff, (length >> 8) & 0xff, (length >> 16) & 0xff, 0];
  return Uint8Array.from([
    0x28,
    0xb5,
    0x2f,
    0xfd,
    0xa0,
    ...size,
    head & 0xff,
    (head >> 8) & 0xff,
    head >> 16,
    ...input,
  ]);
}
