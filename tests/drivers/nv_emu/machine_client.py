"""A raw client of the emulated machine, written from the fact sheet alone: the shortest bring-up that launches a grid."""

# ruff: noqa: E501 - summaries and tables that name their parameters read best on one line

from __future__ import annotations

import ctypes
import struct
import time
from typing import Any

from drivers.kernel import MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, PROT_NONE
from drivers.nv.emu.kernel import EmulatedKernel
from drivers.nv.emu.profile import profile_of
from drivers.nv.layouts import branches, compute, dma, gpfifo, host, qmd, rm, uvm
from drivers.nv.layouts.cubin import BANK0

HUGE = 2 << 20


class Client:
    """Brings up an emulated GPU call by call; `status` is what the last call answered."""

    def __init__(self, variant: str | None = None) -> None:
        self.kernel = EmulatedKernel(profile_of(variant))
        self.profile = self.kernel.profile
        self.layout = branches.STRUCTS[self.profile.branch]
        self.row = self.profile.generation
        self.status = 0
        self.next = 0xCAFE_0000
        self.window = self.kernel.mmap(
            1 << 30, va=0x2_0000_0000, prot=PROT_NONE, flags=MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED
        )
        self.at = self.window.va
        self.ctl, self.gpu = self.kernel.open("/dev/nvidiactl"), self.kernel.open("/dev/nvidia0")
        self.uvm, self.uvm2 = self.kernel.open("/dev/nvidia-uvm"), self.kernel.open("/dev/nvidia-uvm")

    def close(self) -> None:
        self.kernel.close_all()
        self.kernel.munmap(self.window.va, self.window.size)

    def escape(self, fd: Any, nr: Any, values: Any):
        block = bytearray(values.to_bytes())
        self.kernel.ioctl(fd, rm.request(nr, len(block)), block)
        return type(values).from_bytes(block)

    def alloc(self, parent: Any, cls: Any, values: Any = None, size: Any = None):
        raw = ctypes.create_string_buffer(values.to_bytes(), values.SIZE) if values is not None else None
        self.next += 1
        done = self.escape(
            self.ctl,
            rm.Escape.NV_ESC_RM_ALLOC,
            rm.NVOS64_PARAMETERS(
                hRoot=self.root,
                hObjectParent=parent,
                hObjectNew=self.next,
                hClass=cls,
                pAllocParms=ctypes.addressof(raw) if raw else 0,
                paramsSize=(values.SIZE if size is None else size) if raw else 0,
            ),
        )
        self.status = done.status
        return done.hObjectNew

    def control(self, item: Any, cmd: Any, values: Any, size: Any = None):
        raw = ctypes.create_string_buffer(values.to_bytes(), values.SIZE)
        done = self.escape(
            self.ctl,
            rm.Escape.NV_ESC_RM_CONTROL,
            rm.NVOS54_PARAMETERS(
                hClient=self.root,
                hObject=item,
                cmd=cmd,
                params=ctypes.addressof(raw),
                paramsSize=values.SIZE if size is None else size,
            ),
        )
        self.status = done.status
        return type(values).from_bytes(raw.raw)

    def uvm_call(self, command: Any, fd: Any = None, **values: Any):
        layout = self.layout[uvm.COMMAND_STRUCTS[command].__name__]
        block = bytearray(layout(**values).to_bytes())
        self.kernel.ioctl(self.uvm if fd is None else fd, command, block)
        self.status = layout.from_bytes(block).rmStatus
        return layout.from_bytes(block)

    def bring_up(self) -> None:
        """Steps 3 to 16 of the fact sheet."""
        root = self.escape(self.ctl, rm.Escape.NV_ESC_RM_ALLOC, rm.NVOS64_PARAMETERS(hClass=0x41))
        self.root = root.hObjectNew
        self.escape(self.gpu, rm.Escape.NV_ESC_REGISTER_FD, rm.nv_ioctl_register_fd_t(ctl_fd=self.ctl))
        self.device = self.alloc(
            self.root, 0x80, self.layout["NV0080_ALLOC_PARAMETERS"](hClientShare=self.root)
        )
        self.subdevice = self.alloc(self.device, 0x2080, self.layout["NV2080_ALLOC_PARAMETERS"]())
        cls = self.row.usermode[0]
        params = self.layout["NV_HOPPER_USERMODE_A_PARAMS"](bBar1Mapping=1) if cls >= 0xC661 else None
        usermode = self.alloc(self.subdevice, cls, params)
        self.bell = self.kernel.mmio(self.map_fd(usermode, self.subdevice, 0x10000, "gpu"), 0x10000, 0)
        self.vaspace = self.alloc(
            self.device, 0x90F1, self.layout["NV_VASPACE_ALLOCATION_PARAMETERS"](flags=8)
        )
        gid = self.control(
            self.subdevice, 0x2080014A, self.layout["NV2080_CTRL_GPU_GET_GID_INFO_PARAMS"](flags=2)
        )
        self.uuid = uvm.NvProcessorUuid(uuid=gid.data[:16])
        self.uvm_call(uvm.UvmCommand.UVM_INITIALIZE)
        self.uvm_call(uvm.UvmCommand.UVM_MM_INITIALIZE, fd=self.uvm2, uvmFd=self.uvm)
        self.uvm_call(uvm.UvmCommand.UVM_REGISTER_GPU, gpu_uuid=self.uuid, rmCtrlFd=-1)
        self.uvm_call(
            uvm.UvmCommand.UVM_REGISTER_GPU_VASPACE,
            gpuUuid=self.uuid,
            rmCtrlFd=self.ctl,
            hClient=self.root,
            hVaSpace=self.vaspace,
        )

    def map_fd(self, item: Any, device: Any, length: Any, node: Any):
        fd = self.kernel.open("/dev/nvidia0" if node == "gpu" else "/dev/nvidiactl")
        if node == "gpu":
            self.escape(fd, rm.Escape.NV_ESC_REGISTER_FD, rm.nv_ioctl_register_fd_t(ctl_fd=self.ctl))
        params = rm.NVOS33_PARAMETERS(hClient=self.root, hDevice=device, hMemory=item, length=length)
        done = self.escape(
            self.ctl,
            rm.Escape.NV_ESC_RM_MAP_MEMORY,
            rm.nv_ioctl_nvos33_parameters_with_fd(params=params, fd=fd),
        )
        self.status = done.params.status
        return fd

    def memory(self, size: Any = HUGE):
        """Video memory, mapped for CPU and GPU at one address; returns its view and handle."""
        values = self.layout["NV_MEMORY_ALLOCATION_PARAMS"](
            owner=self.root, flags=0xC101, attr=3 << 27, attr2=1 | 1 << 2, size=size, alignment=4096
        )
        item = self.alloc(self.device, 0x40, values)
        fd = self.map_fd(item, self.device, size, "gpu")
        mapping = self.kernel.mmap(size, fd=fd, va=self.at, flags=MAP_SHARED | MAP_FIXED)
        self.at += -(-size // HUGE) * HUGE
        self.map_gpu(item, mapping.va, size)
        return mapping, item

    def map_gpu(self, item: Any, va: Any, size: Any):
        self.uvm_call(uvm.UvmCommand.UVM_CREATE_EXTERNAL_RANGE, base=va, length=size)
        attributes = uvm.UvmGpuMappingAttributes(gpuUuid=self.uuid, gpuMappingType=1)
        self.uvm_call(
            uvm.UvmCommand.UVM_MAP_EXTERNAL_ALLOCATION,
            base=va,
            length=size,
            perGpuAttributes=(attributes,),
            gpuAttributesCount=1,
            rmCtrlFd=self.ctl,
            hClient=self.root,
            hMemory=item,
        )

    def channel(self, engine: Any = 1):
        """Steps 18 to 24; the ring takes the first 8 KiB of 2 MiB, the user area the next page, notifier and segments follow."""
        self.arena, arena = self.memory()
        self.group = self.alloc(
            self.device,
            0xA06C,
            self.layout["NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS"](hVASpace=self.vaspace, engineType=engine),
        )
        self.notifier, error = self.memory(4096)
        self.channel_handle = self.alloc(
            self.group,
            self.row.gpfifo[0],
            self.layout["NV_CHANNEL_ALLOC_PARAMS"](
                hObjectError=error,
                gpFifoOffset=self.arena.va,
                gpFifoEntries=1024,
                hUserdMemory=(arena,),
                userdOffset=(0x2000,),
            ),
        )
        if engine == 1:
            self.compute = self.alloc(
                self.channel_handle,
                self.row.compute,
                self.layout["NV_GR_ALLOCATION_PARAMETERS"](version=2, size=16),
            )
            self.alloc(self.channel_handle, self.row.copy[0])
        else:
            self.alloc(
                self.channel_handle,
                self.row.copy[0],
                self.layout["NVB0B5_ALLOCATION_PARAMETERS"](version=1, engineType=engine),
            )
        self.uvm_call(
            uvm.UvmCommand.UVM_REGISTER_CHANNEL,
            gpuUuid=self.uuid,
            rmCtrlFd=self.ctl,
            hClient=self.root,
            hChannel=self.channel_handle,
            base=0x10_0000_0000,
            length=64 << 20,
        )
        token = self.control(
            self.channel_handle,
            0xC36F0108,
            self.layout["NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS"](),
        )
        self.token = token.workSubmitToken
        self.control(self.group, 0xA06C0101, self.layout["NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS"](bEnable=1))
        self.put, self.segment = 0, 0x10000

    @staticmethod
    def methods(subchannel: Any, address: Any, *data: Any) -> Any:
        return [
            int(gpfifo.MethodHeader(ADDRESS=address, SUBCHANNEL=subchannel, COUNT=len(data), OPCODE=1)),
            *data,
        ]

    def submit(self, words: Any) -> None:
        raw = struct.pack(f"<{len(words)}I", *words)
        self.arena.view[self.segment : self.segment + len(raw)] = raw
        entry = gpfifo.GpfifoEntry(ADDRESS=self.arena.va + self.segment, LENGTH=len(words))
        self.segment += -(-len(raw) // 256) * 256
        self.arena.view[8 * self.put : 8 * self.put + 8] = struct.pack("<Q", int(entry))
        self.put = (self.put + 1) % 1024
        self.arena.view[0x208C:0x2090] = struct.pack("<I", self.put)
        self.bell.write32(0x90, self.token)

    def release(self, va: Any, value: Any, *, wfi: Any = True):
        word = host.SemExecute(OPERATION=1, RELEASE_WFI=wfi, PAYLOAD_SIZE=1, RELEASE_TIMESTAMP=1)
        return self.methods(0, 0x5C, va & 0xFFFF_FFFF, va >> 32, value & 0xFFFF_FFFF, value >> 32, int(word))

    def bind(self):
        return self.methods(1, 0, self.row.compute) + self.methods(4, 0, self.row.copy[0])

    def word(self, at: Any) -> int:
        return struct.unpack_from("<Q", self.arena.view, at)[0]

    def wait(self, at: Any, value: Any, seconds: Any = 10.0) -> bool:
        """Wait for a semaphore in the arena; False when the channel posted an error first."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.word(at) >= value:
                return True
            if self.error():
                return False
            time.sleep(0.0005)
        raise TimeoutError(f"{self.word(at)} of {value}: {self.kernel.complaints}")

    def error(self) -> int:
        """The robust-channel code in the notifier, 0 when there is none."""
        return (
            struct.unpack_from("<I", self.notifier.view, 8)[0]
            if struct.unpack_from("<H", self.notifier.view, 14)[0]
            else 0
        )

    # ---- launches

    def windows(self):
        shared, local = 0x7294_0000_0000, 0x7293_0000_0000
        c = compute.ComputeMethod
        return self.methods(
            1, c.SET_SHADER_SHARED_MEMORY_WINDOW_A, shared >> 32, shared & 0xFFFF_FFFF
        ) + self.methods(1, c.SET_SHADER_LOCAL_MEMORY_WINDOW_A, local >> 32, local & 0xFFFF_FFFF)

    def descriptor(self, program: Any, bank: Any, bank_size: Any, grid: Any, block: Any, **more: Any):
        version = self.row.qmd
        shared = more.pop("shared", 0x400)
        values = {
            "CTA_THREAD_DIMENSION0": block,
            "CTA_THREAD_DIMENSION1": 1,
            "CTA_THREAD_DIMENSION2": 1,
            "BARRIER_COUNT": 1,
            "CONSTANT_BUFFER_VALID": (1,),
            "CONSTANT_BUFFER_SIZE_SHIFTED4": (-(-bank_size // 16),),
            "API_VISIBLE_CALL_LIMIT": 1,
        }
        kib = 8
        values |= {f"{n}_SM_CONFIG_SHARED_MEM_SIZE": qmd.sm_config(kib) for n in ("MIN", "MAX", "TARGET")}
        if version == "V03":
            values |= {
                "CTA_RASTER_WIDTH": grid,
                "CTA_RASTER_HEIGHT": 1,
                "CTA_RASTER_DEPTH": 1,
                "REGISTER_COUNT_V": 16,
                "CONSTANT_BUFFER_ADDR_LOWER": (bank & 0xFFFF_FFFF,),
                "CONSTANT_BUFFER_ADDR_UPPER": (bank >> 32,),
            }
        else:
            values |= {
                "QMD_TYPE": 2,
                "GRID_WIDTH": grid,
                "GRID_HEIGHT": 1,
                "GRID_DEPTH": 1,
                "REGISTER_COUNT": 16,
                "CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6": (bank >> 6 & 0xFFFF_FFFF,),
                "CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6": (bank >> 38,),
            }
        if version == "V05":
            values |= {
                "PROGRAM_ADDRESS_LOWER_SHIFTED4": program >> 4 & 0xFFFF_FFFF,
                "PROGRAM_ADDRESS_UPPER_SHIFTED4": program >> 36,
                "SHARED_MEMORY_SIZE_SHIFTED7": shared >> 7,
            }
        else:
            values |= {
                "PROGRAM_ADDRESS_LOWER": program & 0xFFFF_FFFF,
                "PROGRAM_ADDRESS_UPPER": program >> 32,
                "SHARED_MEMORY_SIZE": shared,
            }
        return qmd.QMDS[version](**(values | more))

    def launch(self, at: Any, action: Any = 9):
        c = compute.ComputeMethod
        return self.methods(1, c.SEND_PCAS_A, at >> 8) + self.methods(1, c.SEND_SIGNALING_PCAS2_B, action)

    def bank0(self, grid: Any, block: Any, params: bytes) -> bytes:
        return BANK0[self.profile.arch](ntid=(block, 1, 1), nctaid=(grid, 1, 1)).to_bytes() + params


def cubin(ptx: str, name: str, arch: str, params: int, *, shared: int = 0) -> bytes:
    """A cubin whose code is noise: sections, info records and the PTX are what a real one has."""
    base = BANK0[arch].SIZE
    code = bytes((7 * i + len(ptx)) % 251 for i in range(256))
    symbol = 1
    info = b"".join(struct.pack("<BBHII", 4, a, 8, symbol, v) for a, v in ((0x2F, 16), (0x12, 0)))
    own = struct.pack("<BBHIHH", 4, 0x0A, 8, symbol, base, params) + struct.pack("<BBH", 3, 0x19, params)
    own += struct.pack("<BBHB3x", 4, 0x4C, 4, 1)
    parts = [
        ("", 0, b"", 0),
        (".shstrtab", 3, b"", 0),
        (".strtab", 3, b"\0" + name.encode() + b"\0", 0),
        (".symtab", 2, bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 6, 0, len(code)), 2),
        (".nv.info", 0x70000000, info, 0),
        (f".nv.info.{name}", 0x70000000, own, 0),
        (f".text.{name}", 1, code, 0),
        (f".nv.constant0.{name}", 1, bytes(base + params), 0),
        (".hcq.ptx", 1, ptx.encode() + b"\0", 0),
    ]
    names = b""
    heads, body = [], bytearray(64)
    for title, *_ in parts:
        heads.append(len(names))
        names += title.encode() + b"\0"
    parts[1] = (".shstrtab", 3, names, 0)
    table = []
    for (_, type_, data, link), at in zip(parts, heads, strict=True):
        body += bytes(-len(body) % 128)
        table.append(
            struct.pack(
                "<IIQQQQIIQQ", at, type_, 0, 0, len(body), len(data), link, 0, 1, 24 if type_ == 2 else 0
            )
        )
        body += data
    body += bytes(-len(body) % 8)
    number = int(arch.removeprefix("sm_"))
    ident = b"\x7fELF" + bytes([2, 1, 1, 0x41, 8]) + bytes(7)
    body[:64] = struct.pack(
        "<16sHHIQQQIHHHHHH",
        ident,
        2,
        190,
        1,
        0,
        0,
        len(body),
        0x06000006 | number << 8,
        64,
        0,
        0,
        64,
        len(parts),
        1,
    )
    return bytes(body) + b"".join(table)


__all__ = ["HUGE", "Client", "cubin", "dma"]
