"""Types of TensorFlow's ops by what they do to the shapes that they are given, and how much they compute."""


def _types(text: str) -> frozenset[str]:
    return frozenset(text.split())


# One operation for each number they make, or none (see op_costs); of inputs the larger counts.
ELEMENTWISE = _types(
    """
    Abs Add AddN AddV2 BiasAdd BiasAddV1 Ceil Cos Cosh Div DivNoNan Elu EluGrad Equal Erf
    Erfc Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Inv InvGrad IsFinite IsInf IsNan LeakyRelu
    LeakyReluGrad Less LessEqual Log Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan
    Neg NotEqual Pow RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad Rint Round Rsqrt
    RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid SigmoidGrad Sign Sin Sinh Softplus SoftplusGrad Softsign
    SoftsignGrad Sqrt SqrtGrad Square SquaredDifference Sub Tan Tanh TanhGrad TruncateDiv Xdivy Xlogy
    """
)
# They hand on what they are given, or change its type: one shape in, the same out.
LIKE_FIRST = _types(
    """
    BiasAdd BiasAddV1 Cast CheckNumerics Identity LogSoftmax MaxPoolGrad OnesLike PreventGradient Snapshot
    Softmax StopGradient ZerosLike
    """
)
# What they make has the first dimension of what they are given as its own, where both are open.
BATCHED = _types(
    """
    ArgMax AvgPool AvgPool3D BatchMatMul BatchMatMulV2 BatchMatMulV3 Conv2D Conv2DBackpropInput Conv3D
    Conv3DBackpropInputV2 DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput FusedBatchNormGradV3
    FusedBatchNormV3 MatMul MaxPool MaxPool3D Mean Pad PadV2 SoftmaxCrossEntropyWithLogits
    SparseSoftmaxCrossEntropyWithLogits Sum
    """
)
# As many numbers out as in, or as in all together; rows by their numbers.
KEEPS = _types("ConjugateTranspose ExpandDims Reshape ReverseV2 Squeeze Transpose")
# Which of what they take is the shape of what they make.
_RANDOM = _types(
    "RandomStandardNormal RandomUniform StatelessRandomNormalV2 StatelessRandomUniformV2"
)
SHAPED_BY = {"BroadcastTo": 1, "Reshape": 1, "Fill": 0, **dict.fromkeys(_RANDOM, 0)}
JOINS = _types("ConcatV2 Pack")
GATHERS = _types("GatherV2 ResourceGather")
# They compute nothing: what they are given is read, what they make is written.
COPIES = _types(
    """
    BatchToSpaceND BroadcastTo Cast Concat ConcatV2 ConjugateTranspose DepthToSpace Fill MirrorPad OnesLike
    Pack Pad PadV2 ReverseV2 SpaceToBatchND SpaceToDepth Tile Transpose Unpack ZerosLike
    """
)
# Likewise, but of what they are given they need read no more than they make.
PICKS = _types("Gather GatherV2 ResourceGather Slice Split SplitV StridedSlice")
POOLS = _types("AvgPool AvgPool3D MaxPool MaxPool3D")
POOL_GRADIENTS = _types("AvgPool3DGrad AvgPoolGrad MaxPool3DGrad MaxPoolGrad")
NORMALIZATIONS = {
    **dict.fromkeys(_types("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"), 6),
    **dict.fromkeys(_types("FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3"), 11),
}
_REDUCTIONS = _types(
    "All Any ArgMax ArgMin BiasAddGrad Cumsum Max Mean Min Prod Sum UnsortedSegmentSum"
)
_SOFTMAXES = _types(
    "LogSoftmax Softmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits"
)
# Operations for each number of the first input.
PER_INPUT = NORMALIZATIONS | dict.fromkeys(_REDUCTIONS, 1) | dict.fromkeys(_SOFTMAXES, 5)
CONVOLUTIONS = _types("Conv2D Conv3D DepthwiseConv2dNative")
INPUT_GRADIENTS = _types(
    "Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput"
)
FILTER_GRADIENTS = _types(
    "Conv2DBackpropFilter Conv3DBackpropFilterV2 DepthwiseConv2dNativeBackpropFilter"
)
PRODUCTS = _types("MatMul")
BATCH_PRODUCTS = _types("BatchMatMul BatchMatMulV2 BatchMatMulV3")
# Updates of weights: operations for each weight, how often memory is passed over (what is read and what is
# written: the weight, its slots, its gradient), and which input is the gradient.
UPDATES = {
    "ResourceApplyGradientDescent": (2, 3, 2),
    "ResourceApplyMomentum": (4, 5, 3),
    "ResourceApplyKerasMomentum": (4, 5, 3),
    "ResourceApplyAdagrad": (6, 5, 3),
    "ResourceApplyAdagradV2": (6, 5, 4),
    "ResourceApplyRMSProp": (11, 7, 7),
    "ResourceApplyAdam": (12, 7, 9),
    "AssignAddVariableOp": (1, 3, 1),
    "AssignSubVariableOp": (1, 3, 1),
}
