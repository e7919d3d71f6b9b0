/** Delta-rule sequence models in the browser. Everything runs in one Worker, on WebGPU or on the CPU. */

/** Where a model comes from: the address of its folder or of a `files.json` in it, or its files. */
export type Source =
  | string
  | URL
  | Iterable<File | { name: string; data: Blob | ArrayBuffer | ArrayBufferView }>
  | Map<string, Blob | ArrayBuffer | ArrayBufferView>
  | Record<string, Blob | ArrayBuffer | ArrayBufferView>;

/** `auto`: a real GPU if there is one, else the CPU. `gpu` takes a software adapter too. */
export type Device = "auto" | "gpu" | "cpu";

export interface Progress {
  stage: "downloading" | "reading" | "checking" | "uploading" | "compiling";
  /** Bytes. */
  done: number;
  /** Bytes. */
  total: number;
  /** Over the last three seconds; 0 when nothing comes from the network. */
  bytesPerSecond?: number;
}

export interface LoadOptions {
  /** What it throws ends the loading, which rejects with it. */
  onProgress?: (progress: Progress) => void;
  /** Default `auto`. */
  device?: Device;
  /** Most sessions alive at once, default 4. */
  sessions?: number;
  /** Keep downloaded files in the browser's storage, default true. */
  store?: boolean;
  signal?: AbortSignal;
}

/** How far a prompt is read, in tokens. */
export interface ReadProgress {
  read: number;
  total: number;
}

export interface ReadOptions {
  /**
   * Called before the first token, every few dozen on the CPU, every 2,048 on a GPU, and at the end. What it throws, or
   * what comes of its promise meanwhile, rejects the call; as after an abort, the session is as it was before. (At the end
   * all has been read: what is thrown then rejects too, and the session stands after the prompt.)
   */
  onProgress?: (progress: ReadProgress) => void;
  /**
   * Aborting rejects with the signal's reason, and nothing of the prompt is taken: the session is as it was before. What
   * comes too late, when the last tokens are being read, has no effect: the promise is fulfilled.
   */
  signal?: AbortSignal;
}

export interface ModelInfo {
  modelType: string;
  parameters: number;
  weightBytes: number;
  layers: number;
  hidden: number;
  vocab: number;
  /** A session's memory, whatever its length. */
  stateBytes: number;
  /** What attention layers of a hybrid add for each token; 0 for all others. */
  cacheBytesPerToken: number;
  fingerprint: string;
  hasTokenizer: boolean;
  bos: number | null;
  eos: number[];
  engine: "gpu" | "cpu";
  /** Engine and device in words. */
  device: string;
  /** Why `auto` did not take a GPU. */
  note: string | null;
}

export interface GenerateOptions {
  /** 0 always takes the most likely token. Default 0.6. */
  temperature?: number;
  /** 0 keeps all. */
  topK?: number;
  /** Default 1. */
  topP?: number;
  /** Default 0.05. */
  minP?: number;
  repetitionPenalty?: number;
  /** The same seed draws the same tokens from the same logits, on every device. */
  seed?: number;
  /** Default 256. */
  maxTokens?: number;
  /** Texts that end the generation; they are not shown. */
  stop?: string | string[];
  /** Default true. */
  stopAtEndOfText?: boolean;
  /** Most steps a GPU submission: 16, or 8 where a program imitates the GPU. */
  stepsAhead?: number;
  /** How far the prompt is read. What it throws ends the iteration, with the session as an abort leaves it. */
  onProgress?: (progress: ReadProgress) => void;
  /**
   * Aborting ends the iteration with the signal's reason. While the prompt is being read nothing of it is taken: the
   * session is as it was before. Later the session stands after the prompt and exactly what was handed out.
   */
  signal?: AbortSignal;
}

export interface Piece {
  token: number;
  /** The text that this token completes; empty while a character or a possible stop text is incomplete. */
  text: string;
  /** ln of its probability under the model itself. */
  logprob: number;
}

export interface Batch {
  tokens: Uint32Array;
  texts: string[];
  logprobs: Float32Array;
}

export interface Prompt {
  /** With the token that begins a text, when it is the session's first. */
  tokens: Uint32Array;
  texts: string[];
}

export interface Finished {
  finish: "length" | "end of text" | "stop" | "cancelled";
  endToken: number | null;
  /** Text that no token completed. */
  tail: string;
  /** What was fed first; absent without a prompt, and when it was stopped while that was being read. */
  prompt?: Prompt;
}

/**
 * Iterate it once. Leaving the loop early leaves the session after exactly the pieces it handed out.
 *
 * From its first step to its end the session does nothing else: other calls on it are refused with the code `busy`, and
 * so are those from inside the loop. `stop()` (or leaving the loop) first, then call.
 */
export interface Generation extends AsyncIterable<Piece> {
  /** Up to `most` tokens at a time, as they come; default 64. */
  batches(most?: number): AsyncIterableIterator<Batch>;
  /** Ends it after what has been handed out; while the prompt is being read, with nothing of that taken. */
  stop(): void;
  /** How it ended. If nobody iterates it, it runs to its end for whoever asks for this. */
  readonly done: Promise<Finished>;
}

/** Heads that there are to see. */
export interface Grid {
  /** Layers that have a state. */
  layers: number;
  /** Most value heads of a layer. */
  heads: number;
  keyDim: number;
  valueDim: number;
}

export interface ViewOptions {
  session?: Session;
  /** Pixels of the canvas. */
  width: number;
  height: number;
  /** One head only: its layer, counting those that have a state, and its number; both or neither. */
  layer?: number;
  head?: number;
  dark?: boolean;
  /** Contrast, default 1. */
  gain?: number;
  /** Pixels between heads, default 4. */
  gap?: number;
}

export interface View {
  /** Draws, and draws again as tokens arrive. */
  show(options: ViewOptions): Promise<void>;
  detach(): Promise<void>;
}

export type DeviceEvent = { type: "lost" } | { type: "recovered"; info: ModelInfo };

/**
 * A text being read and written. Calls wait for each other, but not for a generation (see `Generation`); `fork()` makes an
 * independent reader. After `dispose()`, and after `shutdown()`, every call is refused with the code `disposed`.
 *
 * Options that are null, or absent, are as if they were not there; names that there are not are refused. Arguments are
 * checked before anything changes.
 */
export interface Session {
  readonly info: ModelInfo;
  readonly grid: Grid;
  /**
   * Reads a text or token ids. At the start of a session the token that begins a text comes first, if the model has one:
   * also for an empty text.
   */
  feed(prompt: string | ArrayLike<number>, options?: ReadOptions | null): Promise<Prompt>;
  /** Feeds the prompt as `feed` does, if there is one, and goes on. */
  generate(prompt?: string | ArrayLike<number> | null, options?: GenerateOptions | null): Generation;
  /** Every token fed so far. */
  tokens(): Promise<Uint32Array>;
  /** Logits of the next token, `[vocab]`. */
  logits(): Promise<Float32Array>;
  /** Feeds tokens; −ln p of each, except of a session's very first one, which nothing foretells. */
  score(tokens: ArrayLike<number>, options?: ReadOptions | null): Promise<Float32Array>;
  /** Feeds tokens; write strength β and decay of each, `[tokens, layers, heads, 2]` over the grid; NaN where a layer has fewer heads. */
  gates(tokens: ArrayLike<number>, options?: ReadOptions | null): Promise<Float32Array>;
  reset(): Promise<void>;
  fork(): Promise<Session>;
  /** The session as bytes that every engine of the same model loads, the native one too. */
  save(): Promise<Uint8Array>;
  /** Replaces this session by a saved one; returns its tokens. */
  restore(bytes: ArrayBuffer | Uint8Array | Blob): Promise<Uint32Array>;
  encode(text: string): Promise<Uint32Array>;
  decode(tokens: ArrayLike<number>): Promise<string>;
  /** The text that each token completes. */
  pieces(tokens: ArrayLike<number>): Promise<string[]>;
  /**
   * Shows the state on a canvas element, which belongs to the Worker from then on. `direct`: the GPU draws on the canvas
   * itself (else its pixels are copied there); default true on a real GPU.
   */
  view(canvas: HTMLCanvasElement, options?: { direct?: boolean } | null): Promise<View>;
  /** A lost device is opened again and the session goes on; this tells of it. Returns what ends the telling. */
  onDevice(listener: (event: DeviceEvent) => void): () => void;
  /** Frees the session, and the model with its last one. Returns the bytes of GPU memory still in use. */
  dispose(): Promise<number>;
}

export function load(source: Source, options?: LoadOptions | null): Promise<Session>;
/** Opens a device ahead of loading; returns it in words. */
export function open(device?: Device | null): Promise<string>;
/** Ends the Worker, and every session with it. The next `load` starts another. */
export function shutdown(): void;

export interface Shape {
  batch?: number;
  tokens: number;
  heads?: number;
  valueHeads?: number;
  keyDim: number;
  valueDim: number;
}

/** Tensors are row-major. N is the number of sequences: `batch`, or the packed ones of `cuSeqlens`. */
export interface DeltaCall {
  shape: Shape;
  /** `[batch, tokens, heads, keyDim]` */
  q: Float32Array;
  /** `[batch, tokens, heads, keyDim]` */
  k: Float32Array;
  /** `[batch, tokens, valueHeads, valueDim]` */
  v: Float32Array;
  /** `[batch, tokens, valueHeads]` */
  beta?: Float32Array;
  /** Log decay, `[batch, tokens, valueHeads]` or `[batch, tokens, valueHeads, keyDim]` */
  g?: Float32Array;
  /** `[N, valueHeads, keyDim, valueDim]` */
  initialState?: Float32Array;
  precond?: { g: Float32Array; beta: Float32Array; logScale: Float32Array; initial?: Float32Array };
  /** `[N + 1]` offsets of packed sequences. */
  cuSeqlens?: Uint32Array;
  /** Default `keyDim ** -0.5`. */
  scale?: number;
  l2norm?: boolean;
  chunk?: 16 | 32 | 64;
  chunkStates?: boolean;
  device?: Device;
}

export interface DeltaResult {
  /** `[batch, tokens, valueHeads, valueDim]` */
  o: Float32Array;
  /** `[N, valueHeads, keyDim, valueDim]` */
  finalState: Float32Array;
  finalSums: Float32Array;
  chunkStates: Float32Array;
  chunk: number;
}

/** Tensors are row-major. Query head `h` reads key and value head `h / (heads / kvHeads)`. */
export interface AttentionCall {
  /** `kvHeads` defaults to `heads`. */
  shape: { batch?: number; tokens: number; heads?: number; kvHeads?: number; headDim: number };
  /** `[batch, tokens, heads, headDim]` */
  q: Float32Array;
  /** `[batch, tokens, kvHeads, headDim]` */
  k: Float32Array;
  /** `[batch, tokens, kvHeads, headDim]` */
  v: Float32Array;
  /** RMSNorm of each head of q and k, weights `[headDim]`; `eps` defaults to 1e-5. */
  qkNorm?: { q: Float32Array; k: Float32Array; eps?: number };
  /** `[N + 1]` offsets of packed sequences. */
  cuSeqlens?: Uint32Array;
  /** Default `headDim ** -0.5`. */
  scale?: number;
  /** Tokens that a query sees, itself included; all before it by default. */
  window?: number;
  /** Base of the rotary embedding, half-split form; none by default. */
  ropeTheta?: number;
  device?: Device;
}

export type Rule =
  | "linear_attention" | "scalar_decay" | "channel_decay" | "deltanet" | "gated_deltanet" | "kda" | "longhorn"
  | "preconditioned_deltanet" | "preconditioned_gated_deltanet" | "preconditioned_kda";

export const operators: {
  /** Token by token. */
  recurrent(rule: Rule, call: DeltaCall): Promise<DeltaResult>;
  /** Chunk by chunk: the same result, for long sequences. */
  chunk(rule: Rule, call: DeltaCall): Promise<DeltaResult>;
  /** Causal softmax attention, full or over a sliding window: `[batch, tokens, heads, headDim]`. */
  attention(call: AttentionCall): Promise<Float32Array>;
};

/** Models kept in the browser's storage. */
export const storage: {
  list(): Promise<{ key: string; url: string; used: number; bytes: number }[]>;
  remove(key?: string): Promise<void>;
};

export const debug: {
  /** Bytes in GPU buffers that are alive. */
  liveBytes(): Promise<number>;
  /** Bytes of the module's memory, which never shrinks. */
  moduleBytes(): Promise<number>;
  loseDevice(): Promise<void>;
};

/** What every call throws or rejects with, except for the reason of an abort signal. Its message is one line. */
export class DeltanetError extends Error {
  readonly name: "DeltanetError";
  readonly code: ErrorCode;
}

export type ErrorCode =
  /** Something that was given is not possible. Nothing has changed. */
  | "argument"
  /** The session generates: stop that, or await its `done`, first. */
  | "busy"
  /** The session was disposed of, or its engine has ended. */
  | "disposed"
  /** The engine broke or could not start; the next `load` starts another. */
  | "crashed"
  /** What was given is no address. */
  | "address"
  /** A file that was given could not be read: it was moved or changed, perhaps. */
  | "file"
  /** The model could not be fetched. */
  | "io"
  /** A file that the model needs is not there. */
  | "missing"
  /** A file of the model is damaged, or not what it should be. */
  | "format"
  /** config.json asks for what no model can have, or this version does not support. */
  | "config"
  /** The weights do not fit the configuration. */
  | "tensor"
  /** The tokenizer is broken, or there is none. */
  | "tokenizer"
  /** A saved session is another model's. */
  | "session"
  /** Bytes are no saved session, or one that was cut or altered. */
  | "session-format"
  | "no-gpu" | "limit" | "out-of-memory" | "device-lost" | "gpu" | "unsupported";
