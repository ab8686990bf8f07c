/* A shim of asahi's driver as Linux has it. Mesa's own speaks an interface from before the driver was in Linux.
 *
 * ASAHI_CHIP is the number of the chip: 8103 is M1, 8112 is M2. Sizes and rates are plausible and belong to no chip.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <drm/asahi_drm.h>

#include "drm-shim/drm_shim.h"

bool drm_shim_driver_prefers_first_render_node = true;

static struct drm_asahi_params_global chip;

static int
succeed(int fd, unsigned long request, void *argument)
{
   return 0;
}

static int
get_parameters(int fd, unsigned long request, void *argument)
{
   struct drm_asahi_get_params *wanted = argument;
   if (wanted->param_group != 0)
      return -EINVAL;
   if (wanted->size > sizeof(chip))
      wanted->size = sizeof(chip);
   memcpy((void *)(uintptr_t)wanted->pointer, &chip, wanted->size);
   return 0;
}

static int
get_time(int fd, unsigned long request, void *argument)
{
   struct drm_asahi_get_time *time = argument;
   time->gpu_timestamp = 1;
   return 0;
}

static int
create_address_space(int fd, unsigned long request, void *argument)
{
   struct drm_asahi_vm_create *space = argument;
   space->vm_id = 1;
   return 0;
}

static int
create_queue(int fd, unsigned long request, void *argument)
{
   struct drm_asahi_queue_create *queue = argument;
   queue->queue_id = 1;
   return 0;
}

static int
create_buffer(int fd, unsigned long request, void *argument)
{
   struct drm_asahi_gem_create *wanted = argument;
   struct shim_bo *buffer = calloc(1, sizeof(*buffer));
   if (!buffer)
      return -ENOMEM;
   const int result = drm_shim_bo_init(buffer, wanted->size);
   if (result != 0) {
      free(buffer);
      return result;
   }
   wanted->handle = drm_shim_bo_get_handle(drm_shim_fd_lookup(fd), buffer);
   drm_shim_bo_put(buffer);
   return 0;
}

static int
place_buffer(int fd, unsigned long request, void *argument)
{
   struct drm_asahi_gem_mmap_offset *wanted = argument;
   struct shim_fd *file = drm_shim_fd_lookup(fd);
   struct shim_bo *buffer = drm_shim_bo_lookup(file, wanted->handle);
   if (!buffer)
      return -ENOENT;
   wanted->offset = drm_shim_bo_get_mmap_offset(file, buffer);
   drm_shim_bo_put(buffer);
   return 0;
}

static int
bind_object(int fd, unsigned long request, void *argument)
{
   struct drm_asahi_gem_bind_object *object = argument;
   object->object_handle = 1;
   return 0;
}

static ioctl_fn_t calls[] = {
   [DRM_ASAHI_GET_PARAMS] = get_parameters,
   [DRM_ASAHI_GET_TIME] = get_time,
   [DRM_ASAHI_VM_CREATE] = create_address_space,
   [DRM_ASAHI_VM_DESTROY] = succeed,
   [DRM_ASAHI_VM_BIND] = succeed,
   [DRM_ASAHI_GEM_CREATE] = create_buffer,
   [DRM_ASAHI_GEM_MMAP_OFFSET] = place_buffer,
   [DRM_ASAHI_GEM_BIND_OBJECT] = bind_object,
   [DRM_ASAHI_QUEUE_CREATE] = create_queue,
   [DRM_ASAHI_QUEUE_DESTROY] = succeed,
   [DRM_ASAHI_SUBMIT] = succeed,
};

void
drm_shim_driver_init(void)
{
   const char *number = getenv("ASAHI_CHIP");
   chip.chip_id = number ? strtoul(number, NULL, 16) : 0x8103;
   chip.gpu_generation = chip.chip_id == 0x8112 ? 14 : 13;
   chip.gpu_variant = 'G';
   chip.features = DRM_ASAHI_FEATURE_SOFT_FAULTS;
   chip.num_dies = 1;
   chip.num_clusters_total = 1;
   chip.num_cores_per_cluster = 8;
   chip.core_masks[0] = 0xff;
   chip.max_frequency_khz = 1000000;
   chip.vm_start = UINT64_C(1) << 14;
   chip.vm_end = (UINT64_C(1) << 39) - (UINT64_C(1) << 14);
   chip.vm_kernel_min_size = UINT64_C(1) << 29;
   chip.max_commands_per_submission = 64;
   chip.max_attachments = 16;
   chip.command_timestamp_frequency_hz = 24000000;

   shim_device.bus_type = DRM_BUS_PLATFORM;
   shim_device.driver_name = "asahi";
   shim_device.driver_ioctls = calls;
   shim_device.driver_ioctl_count = ARRAY_SIZE(calls);

   drm_shim_override_file("DRIVER=asahi\nOF_FULLNAME=/soc/gpu\nOF_COMPATIBLE_0=apple,agx\nOF_COMPATIBLE_N=1\n",
                          "/sys/dev/char/%d:%d/device/uevent", DRM_MAJOR, render_node_minor);
}
