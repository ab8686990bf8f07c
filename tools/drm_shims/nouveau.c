/* Mesa's shim of nouveau for chips that are newer than it: it lists the classes of Ampere, and this puts newer ones in place.
 *
 * NVK knows a generation by the numbers of its classes: copies, 3D and compute. They are NVIDIA's, published in its headers
 * of classes.
 */

#include <stdlib.h>
#include <string.h>

#define drm_shim_driver_init mesa_driver_init
#include "nouveau/drm-shim/nouveau_noop.c"
#undef drm_shim_driver_init

struct generation {
   unsigned chips; /* the chip's number without its last digit */
   uint32_t copy, graphics, compute;
};

static const struct generation generations[] = {
   { 0x190, 0xc7b5, 0xc997, 0xc9c0 }, /* Ada */
   { 0x1b0, 0xcab5, 0xce97, 0xcec0 }, /* Blackwell */
};

static int
list_classes(int fd, unsigned long request, void *argument)
{
   struct {
      struct nvif_ioctl_v0 ioctl;
      struct nvif_ioctl_sclass_v0 classes;
   } *list = argument;
   const unsigned chip = device_info.chip_id;
   const struct generation *newer = NULL;
   for (unsigned i = 0; i < ARRAY_SIZE(generations); i++) {
      if (generations[i].chips == (chip & ~0xfu))
         newer = &generations[i];
   }
   const bool has_classes = list->ioctl.type == NVIF_IOCTL_V0_SCLASS && list->classes.count != 0;
   if (!newer || !has_classes)
      return nouveau_ioctl_nvif(fd, request, argument);
   device_info.chip_id = 0x172; /* the newest that the shim knows */
   const int result = nouveau_ioctl_nvif(fd, request, argument);
   device_info.chip_id = chip;
   for (unsigned i = 0; i < list->classes.count; i++) {
      switch (list->classes.oclass[i].oclass) {
      case AMPERE_DMA_COPY_A:
         list->classes.oclass[i].oclass = newer->copy;
         break;
      case GA102_3D_CLASS:
         list->classes.oclass[i].oclass = newer->graphics;
         break;
      case GA102_COMPUTE_CLASS:
         list->classes.oclass[i].oclass = newer->compute;
         break;
      }
   }
   return result;
}

void
drm_shim_driver_init(void)
{
   mesa_driver_init();
   driver_ioctls[DRM_NOUVEAU_NVIF] = list_classes;
}
