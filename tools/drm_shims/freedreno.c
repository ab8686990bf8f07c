/* Mesa's shim of msm for newer releases of Turnip and newer chips.
 *
 * - Parameters that the shim does not know are refused with EINVAL, which is the kernel's answer, and in silence. Turnip asks
 *   for page tables of its own by such a parameter, and would need calls that the shim does not have.
 * - ADRENO_CHIP_ID names a chip by its 64-bit identification, as newer chips do that have no number of three digits.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define drm_shim_driver_init mesa_driver_init
#include "freedreno/drm-shim/freedreno_noop.c"
#undef drm_shim_driver_init

static uint64_t chip_id;

static int
get_parameter(int fd, unsigned long request, void *argument)
{
   struct drm_msm_param *parameter = argument;
   if (chip_id && parameter->param == MSM_PARAM_CHIP_ID) {
      parameter->value = chip_id;
      return 0;
   }
   if (chip_id && parameter->param == MSM_PARAM_GPU_ID) {
      parameter->value = 0;
      return 0;
   }
   if (parameter->param > MSM_PARAM_VA_SIZE)
      return -EINVAL;
   return msm_ioctl_get_param(fd, request, argument);
}

static int
set_parameter(int fd, unsigned long request, void *argument)
{
   struct drm_msm_param *parameter = argument;
   return parameter->param > MSM_PARAM_VA_SIZE ? -EINVAL : 0;
}

void
drm_shim_driver_init(void)
{
   const char *text = getenv("ADRENO_CHIP_ID");
   if (text)
      chip_id = strtoull(text, NULL, 16);
   mesa_driver_init();
   driver_ioctls[DRM_MSM_GET_PARAM] = get_parameter;
   driver_ioctls[DRM_MSM_SET_PARAM] = set_parameter;
}
