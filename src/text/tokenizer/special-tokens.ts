/** The special tokens that a model folder names, in tokenizer_config.json or special_tokens_map.json. */

import type { JsonField } from "../json-field.js";

/** The tokens of a chat template's variables, such as `eos_token`. */
export type SpecialTokens = Readonly<Partial<Record<SpecialTokenName, string>>>;

export const specialTokenNames = [
  "bos_token",
  "eos_token",
  "pad_token",
  "unk_token",
  "sep_token",
  "cls_token",
  "mask_token",
] as const;

type SpecialTokenName = (typeof specialTokenNames)[number];

/** Earlier files win. A token is a string, or an object with its content. */
export function readSpecialTokens(files: readonly (JsonField | undefined)[]): SpecialTokens {
  const found: Partial<Record<SpecialTokenName, string>> = {};
  for (const file of files) {
    if (!file) continue;
    for (const name of specialTokenNames) {
      const field = file.get(name);
      if (found[name] !== undefined || field.isAbsent) continue;
      found[name] = field.isString ? field.string(8192) : field.get("content").string(8192);
    }
  }
  return found;
}

/** The class of Llama's tokenizers adds these tokens by its own settings, whatever tokenizer.json says. */
export function readAddedEnds(
  config: JsonField | undefined,
): { readonly addsBos: boolean; readonly addsEos: boolean } | undefined {
  if (!config) return undefined;
  const isLlama = /^(?:Code)?LlamaTokenizer(?:Fast)?$/.test(
    config.get("tokenizer_class").optionalString(100) ?? "",
  );
  const [bos, eos] = [config.get("add_bos_token"), config.get("add_eos_token")];
  if (!isLlama || (bos.isAbsent && eos.isAbsent)) return undefined;
  return { addsBos: bos.boolean(true), addsEos: eos.boolean(false) };
}
