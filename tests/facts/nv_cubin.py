"""cubin container: ELF words, info records, driver words of constant bank 0, relocations, shared memory.

Source: measured with ptxas 12.9 and 13.5 and nvdisasm.
"""

# fmt: off
MACHINE = 190
IDENT = {"12": (0x33, 7), "13": (0x41, 8)}
"""ptxas major version -> (OSABI, ABI version)."""
SM_SHIFT = {"12": 0, "13": 8}
"""ptxas major version -> where e_flags holds the SM number (8 bits)."""
SM_FLAGS_12 = {0x50: "sm_80", 0x5a: "sm_90"}
BARRIER_SHIFT = 20
"""Barrier count in sh_flags of .text.* (ptxas 12)."""
REGISTER_SHIFT = 24
"""Register count in sh_info of .text.* (older ptxas)."""
TEXT_ALIGNMENT, PREFETCH_PADDING = 128, 4096

SECTIONS = (
    ".text.", ".nv.info", ".nv.constant", ".nv.constant0.", ".nv.constant3", ".nv.constant4", ".nv.shared.",
    ".nv.global", ".nv.global.init", ".nv.callgraph", ".nv.prototype",
)
OWN_BANKS = (0, 2)
"""Banks whose section ends in the kernel's name: 2 holds tables of jumps (brx.idx) and constants that the
assembler made; measured with nvJitLink 13 and nvdisasm on sm_80 to sm_120a."""

INFO_FORMATS = {"NVAL": 1, "BVAL": 2, "HVAL": 3, "SVAL": 4}
INFO_ATTRIBUTES = {
    "PARAM_CBANK": 0x0a, "EXTERNS": 0x0f, "FRAME_SIZE": 0x11, "MIN_STACK_SIZE": 0x12, "KPARAM_INFO": 0x17,
    "CBANK_PARAM_SIZE": 0x19, "MAXREG_COUNT": 0x1b, "EXIT_INSTR_OFFSETS": 0x1c, "CRS_STACK_SIZE": 0x1e,
    "REGCOUNT": 0x2f, "SW_WAR": 0x36, "CUDA_API_VERSION": 0x37, "NUM_BARRIERS": 0x4c,
}
CLUSTER_ATTRIBUTES = {"CTA_PER_CLUSTER": 0x3d, "EXPLICIT_CLUSTER": 0x3e, "MAX_CLUSTER_RANK": 0x3f}
"""What .reqnctapercluster, .explicitcluster and .maxclusterrank become; measured with nvJitLink 13, sm_90a to
sm_120a. The payloads: three u32, nothing, one u32."""
INFO_IGNORABLE = (0x50, 0x5f, 0x66, 0x6b, 0x6d)
KPARAM_SIZE_SHIFT, KPARAM_SIZE_MASK = 18, 0x3fff

PARAMETER_BASE = {
    "sm_75": 0x160, "sm_80": 0x160, "sm_86": 0x160, "sm_89": 0x160, "sm_90": 0x210, "sm_100": 0x380,
    "sm_120": 0x380,
}
BANK0: dict[str, dict[str, int]] = {
    "sm_80": {
        "ntid.x": 0x0, "ntid.y": 0x4, "ntid.z": 0x8, "nctaid.x": 0xc, "nctaid.y": 0x10, "nctaid.z": 0x14,
        "shared window": 0x18, "local window": 0x20, "stack pointer": 0x28, "dynamic shared size": 0x2c,
        "grid id": 0x30, "constant bank 3": 0x50, "nsmid": 0x10c, "reserved shared size": 0x114,
        "global descriptor": 0x118,
    },
    "sm_90": {
        "ntid.x": 0x0, "ntid.y": 0x4, "ntid.z": 0x8, "nctaid.x": 0xc, "nctaid.y": 0x10, "nctaid.z": 0x14,
        "shared window": 0x18, "local window": 0x20, "stack pointer": 0x28, "dynamic shared size": 0x2c,
        "grid id": 0x30, "constant bank 3": 0xd0, "nsmid": 0x10c, "reserved shared size": 0x114,
        "global descriptor": 0x208, "cluster nctaid.x": 0x144, "cluster nctaid.y": 0x148,
        "cluster nctaid.z": 0x14c, "nclusterid.x": 0x15c, "nclusterid.y": 0x160, "nclusterid.z": 0x164,
        "cluster nctarank": 0x188,
    },
    "sm_100": {
        "ntid.x": 0x360, "ntid.y": 0x364, "ntid.z": 0x368, "nctaid.x": 0x370, "nctaid.y": 0x374,
        "nctaid.z": 0x378, "shared window": 0x2f0, "local window": 0x2f8, "stack pointer": 0x37c,
        "dynamic shared size": 0x2ac, "grid id": 0x140, "constant bank 3": 0x120, "nsmid": 0x2d0,
        "reserved shared size": 0x16c, "global descriptor": 0x358, "cluster nctaid.x": 0x2a0,
        "cluster nctaid.y": 0x2a4, "cluster nctaid.z": 0x2a8, "nclusterid.x": 0x2c0, "nclusterid.y": 0x2c4,
        "nclusterid.z": 0x2c8, "cluster nctarank": 0x2cc, "cga1 cluster nctaid.x": 0x200,
        "cga1 cluster nctaid.y": 0x204, "cga1 cluster nctaid.z": 0x208, "cga1 dynamic shared size": 0x20c,
        "cga1 nclusterid.x": 0x220, "cga1 nclusterid.y": 0x224, "cga1 nclusterid.z": 0x228,
        "cga1 cluster nctarank": 0x22c,
    },
}
"""Driver words before the parameters: sm_80 stands for sm_75 to sm_89, sm_100 also for sm_120. On these code
reads cluster words and the dynamic size at c[0x0][x - 0xa0 * SR_CgaSize]: "cga1" is where that is 1."""
BANK0_U64 = ("shared window", "local window", "grid id", "global descriptor")
STACK_TOP, STACK_RESERVED, LOCAL_WINDOW = 0xfffdc0, 0x240, 1 << 24
BANK_ALIGNMENT = {"ampere": 256, "hopper": 64}

RELOCATIONS = {"R_CUDA_64": 2, "R_CUDA_ABS32_LO_32": 0x38, "R_CUDA_ABS32_HI_32": 0x39}
RELOCATION_HALF_OFFSET = 4

RESERVED_SHARED = 0x400
SHARED_CARVEOUTS_KIB = {
    "sm_80": (0, 8, 16, 32, 64, 100, 132, 164), "sm_87": (0, 8, 16, 32, 64, 100, 132, 164),
    "sm_86": (0, 8, 16, 32, 64, 100), "sm_89": (0, 8, 16, 32, 64, 100), "sm_120": (0, 8, 16, 32, 64, 100),
    "sm_90": (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
    "sm_100": (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
}
GROUPS_PER_SM = {"sm_80": 32, "sm_86": 16, "sm_87": 16, "sm_89": 24, "sm_90": 32, "sm_100": 32, "sm_120": 24}
"""CUDA C programming guide, technical specifications per compute capability: resident blocks per SM."""
SM_CONFIG_EXAMPLES = {0: 0x1, 100: 0x1a, 228: 0x3a}
"""KiB of shared memory -> the value of the SM_CONFIG fields: KiB / 4 + 1."""
SHARED_ROUNDING, MAX_DYNAMIC_SHARED_H200 = 0x100, 227 << 10

REGISTER_FILE, REGISTER_ALLOCATION, MAX_REGISTERS = 65536, 256, 255
MAX_THREADS = {16: 4096, 32: 2048, 64: 1024, 128: 512, 255: 256}
"""Registers a thread -> threads that fit: 65536 // roundup(registers * 32, 256) // 4 * 4 * 32."""
