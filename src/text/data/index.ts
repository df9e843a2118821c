/** data: rows of tokens for language models, from files of texts, prompts and chats. */

export {
  loadTextData,
  type TextColumns,
  type TextData,
  type TextDataOptions,
  type TextFigures,
} from "./text-data.js";
