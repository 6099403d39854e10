// What the simulated runtime tells the driver below it.
#ifndef NCCLSCOPE_SIM_DRIVER_H
#define NCCLSCOPE_SIM_DRIVER_H

// cudaDeviceReset: the device's context is destroyed.
void driver_reset_device(int device);

#endif
