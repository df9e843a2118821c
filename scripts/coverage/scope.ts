/**
 * PyTorch's names that do not count for coverage, and why. A pattern fits a name in every namespace, or one full name if it has a
 * dot; `*` stands for any letters. The first reason with a fitting pattern decides.
 */

export const outOfScope: Readonly<Record<string, string>> = {
  "quantised tensors": `
    q_* *quantize* quantized_* fbgemm_* int_repr choose_qparams_* fused_moving_avg* qscheme is_quantized per_channel_* per_tensor_*`,
  "sparse tensors": `
    *_sparse* sparse_* is_sparse* is_coalesced coalesce indices indices_copy values values_copy *col_indices* *row_indices* dense_dim to_dense smm dsmm spmm
    hspmm hsmm sspaddmm saddmm to_padded_tensor torch.nn.init.sparse`,
  "complex numbers": `
    complex conj conj_* real imag is_complex is_conj is_neg isreal resolve_conj resolve_neg view_as_complex* view_as_real* polar angle
    chalf cfloat cdouble H mH adjoint stft istft eig eigvals torch.sgn torch.Tensor.sgn torch.Tensor.sgn_`,
  "distributed training": `
    is_distributed DistributedSampler DataParallel batch_norm_*`,
  "types of PyTorch's compiler, and of tensors by dtype": `
    torch.*Type torch.*Storage torch.*Tensor torch.*Dict torch.Script* torch.*Spec torch.*Iterator torch.*Stream torch.*Logger*
    torch.LiteScriptModule torch.AliasDb torch.Argument torch.*Block torch.Benchmark* torch.BufferDict torch.CallStack
    torch.Capsule torch.Code torch.CompilationUnit torch.Concrete* torch.Disable* torch.Dispatch* torch.DeepCopyMemoTable torch.*Context
    torch.ErrorReport torch.Exclude* torch.ExecutionPlan torch.FatalError torch.FileCheck torch.FunctionSchema torch.Future
    torch.Gradient torch.Graph* torch.IODescriptor torch.JITException torch.Node torch.OperatorInfo torch.PyTorchFile* torch.StaticModule
    torch.StorageBase torch.Sym* torch.Tag torch.ThroughputBenchmark torch.TracingState torch.Type torch.Use torch.Value torch.ScriptList
    torch.Size torch.Stream candidate classproperty attr obj typename parse_* import_ir_module* merge_type_from_type_comment
    unify_type_list fork wait read_vitals set_vital vitals_enabled get_file_path prepare_multiprocessing_environment
    torch.layout torch.memory_format torch.dtype torch.device torch.name`,
  "entry points of PyTorch's own backends, and of its code generator": `
    cudnn_* mkldnn_* miopen_* native_* unsafe_* embedding_renorm_ norm_except_dim to_mkldnn is_mkldnn is_vulkan* is_xpu is_ipu
    is_mps is_ort is_meta is_nested xpu ipu record_stream affine_grid_generator grid_sampler* conv_tbc convolution boolean_dispatch
    assert_int_or_pair handle_torch_function has_torch_function* BroadcastingList* torch.nn.functional.DType *_notes GRID_*
    factory_kwargs has_cuda has_cudnn has_lapack has_mkl has_mkldnn has_mps has_openmp has_spectral kineto_available as_subclass rnn_relu
    rnn_tanh torch.lstm torch.gru lstm_cell gru_cell rnn_relu_cell rnn_tanh_cell multi_head_attention_forward TYPE_CHECKING
    max_pool*_with_indices adaptive_max_pool*_with_indices fractional_max_pool*_with_indices feature_dropout feature_dropout_
    constant_pad_nd Uninitialized* RNNBase RNNCellBase DeviceType Profiler* SavedTensor torch.linalg.Tensor torch.nn.init.Tensor
    torch.nn.functional.Tensor torch.optim.lr_scheduler.Optimizer EPOCH_* torch.optim.lr_scheduler.inf DFIterDataPipe DataChunk DataLoader2
    *DataPipe functional_datapipe guaranteed_* non_deterministic runtime_validation* argument_validation`,
  "views as copies, for PyTorch's functional transforms": `
    alias_copy as_strided_copy detach_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy slice_copy split_copy
    split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy`,
  "a second name for a function of torch.nn.functional": `
    torch.celu* torch.selu_ torch.rrelu_
    torch.threshold_ torch.layer_norm torch.group_norm torch.instance_norm torch.batch_norm torch.embedding torch.embedding_bag
    torch.dropout torch.dropout_ torch.alpha_dropout torch.alpha_dropout_ torch.feature_alpha_dropout torch.feature_alpha_dropout_
    torch.nll_loss torch.ctc_loss torch.kl_div torch.*_loss torch.hardshrink torch.prelu torch.selu torch.rrelu torch.bilinear
    torch.binary_cross_entropy_with_logits torch.pixel_* torch.channel_shuffle torch.conv* torch.avg_pool* torch.max_pool*
    torch.adaptive_* torch.threshold torch.pairwise_distance torch.cosine_similarity torch.Tensor.prelu torch.Tensor.hardshrink`,
  "names of dimensions": `
    torch.Tensor.name align_as align_to align_tensors refine_names rename rename_ has_names names`,
  "PyTorch deprecates it, or has removed it": `
    symeig torch.solve torch.Tensor.solve torch.lstsq torch.Tensor.lstsq torch.matrix_rank chain_matmul range triangular_solve
    volatile reinforce resize resize_as resize_as_ torch.Tensor.new ger torch.lu torch.Tensor.lu torch.qr torch.Tensor.qr torch.cholesky
    torch.Tensor.cholesky torch.svd torch.Tensor.svd Container NLLLoss2d CrossMapLRN2d UpsamplingBilinear2d UpsamplingNearest2d
    upsample upsample_bilinear upsample_nearest torch.nn.init.constant torch.nn.init.dirac torch.nn.init.eye torch.nn.init.kaiming_normal
    torch.nn.init.kaiming_uniform torch.nn.init.normal torch.nn.init.orthogonal torch.nn.init.uniform torch.nn.init.xavier_normal
    torch.nn.init.xavier_uniform torch.autograd.variable torch.autograd.Variable NestedIOFunction`,
  "variants that return an error code instead of raising an error": `
    ldl_factor_ex inv_ex cholesky_ex solve_ex lu_factor_ex`,
  "functions of Python for each element": `
    map_ map2_ apply_`,
  "storages, pointers, and settings of a process, which Holdfast manages itself": `
    storage storage_offset storage_type data_ptr set_ share_memory_ is_shared is_set_to is_storage pin_memory is_pinned as_strided as_strided_
    as_strided_scatter resize_ output_nr torch.Tensor.layout empty_strided new_empty_strided from_file frombuffer
    from_dlpack to_dlpack is_inference get_num_threads set_num_threads get_num_interop_threads set_num_interop_threads init_num_threads
    set_flush_denormal set_printoptions get_default_* set_default_* get_autocast_* set_autocast_* autocast_* is_autocast_* *deterministic*
    *warn_always* is_anomaly_* set_anomaly_enabled get_float32_matmul_precision set_float32_matmul_precision
    compiled_with_cxx11_abi torch.seed torch.initial_seed default_generator Generator USE_* AVG SUM PRIVATE_OPS HOIST_* INSERT_* REMOVE_DROPOUT
    CONV_BN_FUSION FUSE_ADD_RELU channels_last* contiguous_format legacy_contiguous_format preserve_format get_device is_signed
    clear_autocast_cache is_same_size worker_info get_worker_info is_cpu is_cuda DataChunk`,
  "the shape of a tensor never changes; the form without the underscore is a view of the same memory": `
    squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_`,
  "JavaScript has it": `
    torch.e torch.pi torch.inf torch.nan can_cast is_tensor is_tensor_like scalar_tensor numpy from_numpy`,
};

/** PyTorch's names that Holdfast has for something else. */
export const otherMeanings: ReadonlySet<string> = new Set([
  "torch.Generator",
  "torch.name",
  "torch.Tensor.name",
]);

/** The reason for which a full name, such as `torch.Tensor.to_sparse`, does not count; undefined if it counts. */
export function reasonNotToCount(fullName: string): string | undefined {
  for (const { reason, patterns } of compiled) if (patterns.test(fullName)) return reason;
  return undefined;
}

const compiled = Object.entries(outOfScope).map(([reason, patterns]) => ({
  reason,
  patterns: new RegExp(patterns.trim().split(/\s+/).map(sourceOf).join("|")),
}));

function sourceOf(pattern: string): string {
  const source = pattern.replaceAll(".", "\\.").replaceAll("*", "[^.]*");
  return pattern.includes(".") ? `^${source}$` : `(?:^|\\.)${source}$`;
}
